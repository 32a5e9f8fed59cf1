package jobs

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Delete deletes a job that does not run: one that is QUEUED, WAITING or over. The next job of its
// sequence becomes QUEUED, and so does its waiting parent if the parent has no other pending child.
//
// Returns [ErrNotFound] if the job does not exist, and [ErrIsRunning] if it runs. Returns
// [ErrChildrenRunning] if it is PAUSED, and [ErrOutstanding] if it has children in any state.
// Returns errors of the store. A call without an error counts as [Stats].Deleted.
func (s *Service) Delete(ctx context.Context, id ID) error {
	err := s.txn.One(ctx, id, func(ctx context.Context, t *txn.Step, j *Row) error {
		switch {
		case j.State.Runs():
			return fmt.Errorf("%w: job %d", ErrIsRunning, id)
		case j.State == Paused:
			return fmt.Errorf("%w: job %d", ErrChildrenRunning, id)
		}
		return s.remove(ctx, t, j)
	})
	return s.counted(&s.count.deleted, err)
}

// Cancel makes a child CANCELLED that is QUEUED, RUNQUEUED, WAITING or FAILED. Its PAUSED parent
// becomes QUEUED if it waits for no other child. A worker that runs a RUNQUEUED child can no longer
// end it. A child that is RUNNING, FINISHED, PAUSED or CANCELLED stays as it is, without an error.
//
// Returns [ErrNoParent] if the job has no parent, [ErrHasChildren] if it has children, and
// [ErrNotFound] if it does not exist. Returns errors of the store. A call without an error counts
// as [Stats].Cancelled.
func (s *Service) Cancel(ctx context.Context, id ID) error {
	err := s.txn.One(ctx, id, func(ctx context.Context, t *txn.Step, j *Row) error {
		if j.HasChildren {
			left, err := t.Tx.Children(ctx, id, jobstore.Page{Limit: 1})
			if err != nil {
				return err
			}
			if len(left) > 0 {
				return fmt.Errorf("%w: job %d", ErrHasChildren, id)
			}
		}
		switch {
		case j.Parent == 0:
			return fmt.Errorf("%w: job %d", ErrNoParent, id)
		case j.State == Running || j.State == Finished || j.State == Paused || j.State == Cancelled:
			return nil
		}
		if err := s.end(ctx, t, j, Cancelled); err != nil {
			return err
		}
		return t.Save(ctx, j)
	})
	return s.counted(&s.count.cancelled, err)
}

// Fail describes a run that failed.
type Fail struct {
	ID ID
	// Token is the fencing token of the attempt. 0: any token matches.
	Token int64
	// Data replaces the job's data. nil: the data stay.
	Data []byte
	// Reason becomes the job's Reason, cut to [MaxReason] bytes.
	Reason string

	// Shared is a hint that the change affects no other job, so that it may share its transaction with
	// other changes.
	Shared bool
}

// Fail makes a running job FAILED, even if it repeats, and keeps the record. The next job of its
// sequence and its waiting parent can then start. A job with a Queue or a Key, but no parent and no
// children, is deleted after Config.Retention. If an answer has come that no worker has claimed
// yet, and f.Token is not 0, the job is made due with that answer instead.
//
// Returns [ErrStale] if f.Token is not the token of the current attempt, and [ErrNotRunning] if the
// job does not run. Returns [ErrNotFound] for an unknown id and a [FieldError] for invalid Data.
// Returns errors of the store; after [ErrUnavailable] the job may have failed. The call counts as
// [Stats].Failed, or as Stale after ErrStale. With the answer delivered it is not counted.
func (s *Service) Fail(ctx context.Context, f Fail) error {
	_, err := s.FailUnlessAnswered(ctx, f)
	return err
}

// FailUnlessAnswered makes a running job FAILED, as [Service.Fail] does, and reports whether an
// answer had come first. If an answer has come that no worker has claimed, and f.Token is not 0,
// delivered is true: the job is due with that answer and has not failed. Of f only Data is then
// stored. Returns the errors of Fail. Only a failure and ErrStale are counted.
func (s *Service) FailUnlessAnswered(ctx context.Context, f Fail) (delivered bool, err error) {
	data, err := rules.CheckGiven(f.Data)
	if err != nil {
		return false, err
	}
	answered := false
	err = s.txn.OneOrBatch(ctx, f.Shared, f.ID, func(ctx context.Context, t *txn.Step, j *Row) error {
		answered = false
		if err := rules.CheckToken(j, f.Token); err != nil {
			return err
		}
		if !j.State.Runs() {
			return fmt.Errorf("%w: job %d is %s", ErrNotRunning, f.ID, j.State)
		}
		rules.SetData(j, data)
		if f.Token != 0 && rules.IsAnswered(j) && j.Phase == "" {
			answered = true
			return s.deliverAnswer(ctx, t, j)
		}
		if t.Shared() && !rules.StandsAlone(j) {
			return txn.ErrNeedsOwnTx
		}
		if err := s.fail(ctx, t, j, f.Reason); err != nil {
			return err
		}
		return t.Save(ctx, j)
	})
	if err == nil && answered {
		return true, nil
	}
	return false, s.counted(&s.count.failed, err)
}
