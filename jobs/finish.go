package jobs

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Finish describes a run that succeeded.
type Finish struct {
	ID ID
	// Token is the fencing token of the attempt. 0: any token matches.
	Token int64
	// Data replaces the job's data, for its next run or for its parent. nil: the data stay. They are
	// deleted together with a job that does not repeat.
	Data []byte

	// Shared is a hint that the change affects no other job and that the record stays. The change may
	// then share its transaction with others.
	Shared bool
}

// Finish ends the current run as a success. It first deletes the job's own FINISHED and CANCELLED
// children, and stores f.Data. Then the first matching rule applies:
//
//   - A job with pending children becomes PAUSED until these are over. Its PAUSED children become
//     QUEUED.
//   - A job that repeats becomes QUEUED for its next run. Data with {"delete":"true"} end its
//     repeats. A next run outside the years 0000 to 9999 makes it FAILED, without an error.
//   - A child becomes FINISHED. Its parent becomes QUEUED if it waits for no other child.
//   - A job with a Queue or a Key becomes FINISHED. Its record is deleted after Config.Retention,
//     unless it still has FAILED children.
//   - Any other job is deleted.
//
// When the job is over, the next job of its sequence becomes QUEUED.
//
// Returns [ErrStale] if f.Token is not the token of the current attempt, and [ErrNotRunning] if the
// job does not run. Returns [ErrParentNotPaused] for a child whose parent is not PAUSED, and
// [ErrOutstanding] if a job to delete has FAILED children. Returns [ErrNotFound] for an unknown id
// and a [FieldError] for invalid Data. Returns errors of the store; after [ErrUnavailable] the run
// may have ended. The call counts as [Stats].Finished, as Failed if the repeat has no next run, or
// as Stale after ErrStale.
func (s *Service) Finish(ctx context.Context, f Finish) error {
	data, err := rules.CheckGiven(f.Data)
	if err != nil {
		return err
	}
	if !f.Shared {
		dropped, err := s.dropSimple(ctx, f.ID, f.Token)
		if err != nil || dropped {
			return s.counted(&s.count.finished, err)
		}
	}
	failed := false
	err = s.txn.OneOrBatch(ctx, f.Shared, f.ID, func(ctx context.Context, t *txn.Step, j *Row) (err error) {
		failed = false
		if err := s.checkCanEnd(t, j, f.Token); err != nil {
			return err
		}
		rules.SetData(j, data)
		failed, err = s.finish(ctx, t, j, rules.AsksToEnd(data))
		return err
	})
	if err == nil && failed {
		return s.counted(&s.count.failed, err)
	}
	return s.counted(&s.count.finished, err)
}

// finish ends the current run of j as a success, by the rules of Finish, and saves or deletes j.
// With stop, a job that repeats ends as if it did not repeat. failed reports that j is FAILED
// because its repeat has no next run. A FINISHED job with a Queue or a Key loses its Reason.
//
// The caller has checked that j can end. Afterwards txn.Engine updates the sequence and the parent
// of j (updateRelated). Returns ErrNeedsOwnTx if other changes share t and other jobs depend on j.
// Returns ErrOutstanding if a job to delete has children. Returns errors of the store, and ErrLocks
// for another try (eachChild).
func (s *Service) finish(ctx context.Context, t *txn.Step, j *Row, stop bool) (failed bool, err error) {
	if t.Shared() && !rules.StandsAlone(j) {
		return false, txn.ErrNeedsOwnTx
	}
	if j.HasChildren {
		if err := s.deleteSeenChildren(ctx, t, j.ID); err != nil {
			return false, err
		}
		if waits, err := s.hasPending(ctx, t, j.ID); err != nil {
			return false, err
		} else if waits {
			return false, s.pause(ctx, t, j)
		}
	}
	if rules.Repeats(j) && !stop {
		if failed, err = s.repeat(ctx, t, j); err != nil {
			return false, err
		}
		return failed, t.Save(ctx, j)
	}
	if j.Parent == 0 && !rules.IsKept(j) {
		return false, s.remove(ctx, t, j)
	}
	if err := s.end(ctx, t, j, Finished); err != nil {
		return false, err
	}
	if rules.IsKept(j) {
		j.Reason = ""
	}
	return false, t.Save(ctx, j)
}

// dropSimple deletes a running job in one statement if the job is simple (Row.Simple) and token
// matches; 0 matches any. dropped reports whether it did. It is false without an error if the job
// is not such a job, or the store is not a Dropper. The caller must then apply the rules. It
// remembers that the store is not a Dropper. Returns errors of the store; the job may then be
// deleted.
func (s *Service) dropSimple(ctx context.Context, id ID, token int64) (dropped bool, err error) {
	if s.noDropper.Load() {
		return false, nil
	}
	err = s.c.Store.Single(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		dropped = false
		d, ok := capability.As[jobstore.Dropper](tx)
		if !ok {
			s.noDropper.Store(true)
			return nil
		}
		var err error
		dropped, err = d.Drop(ctx, id, token)
		return err
	})
	return dropped, err
}

// repeat makes j QUEUED for its next run, moved into its windows. It sets Attempt to 0, so that the
// next attempt is the first one. It clears Phase, Deadline and Expires (rules.StartOver). It does
// not save j. failed reports that the repeat has no next run, and that j is FAILED with the cause
// as its Reason. err is an error of the store only.
func (s *Service) repeat(ctx context.Context, t *txn.Step, j *Row) (failed bool, err error) {
	next, err := s.nextRun(j, t.Now)
	if err != nil {
		return true, s.fail(ctx, t, j, fmt.Sprintf("the repeat %s: %v", j.Repeat, err))
	}
	rules.StartOver(j)
	j.State, j.NextRun = Queued, s.windows.Place(j, next, t.Now)
	return false, nil
}

// pause makes j PAUSED until its children are over, with Attempt 0, and its PAUSED children QUEUED.
// NextRun becomes LastRun, so that j is due at once when it is resumed. It clears Phase, Deadline
// and Expires of j, and saves all of them. Returns the errors of Save and unpauseChildren.
func (s *Service) pause(ctx context.Context, t *txn.Step, j *Row) error {
	rules.StartOver(j)
	j.State, j.NextRun = Paused, j.LastRun
	if err := t.Save(ctx, j); err != nil {
		return err
	}
	return s.unpauseChildren(ctx, t, j.ID)
}

// remove deletes j. Returns ErrOutstanding, and deletes nothing, if j still has children, in any
// state. Returns errors of the store.
func (s *Service) remove(ctx context.Context, t *txn.Step, j *Row) error {
	if j.HasChildren {
		left, err := t.Tx.Children(ctx, j.ID, jobstore.Page{Limit: 1})
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("%w: job %d has job %d, which is %s", ErrOutstanding, j.ID, left[0].ID, left[0].State)
		}
	}
	return t.Drop(ctx, j.ID)
}
