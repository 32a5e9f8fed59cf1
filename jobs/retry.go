package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/task"
)

// Retry describes a running job that becomes QUEUED again.
type Retry struct {
	ID ID
	// Token is the fencing token of the attempt. 0: any token matches.
	Token int64
	// NextRun is the time of the next run, unless the job repeats. It is rounded up to microseconds.
	// Zero: after Delay.
	NextRun time.Time
	// Delay is added to the store's time and rounded up to microseconds. It must not be negative.
	Delay time.Duration
	// Name, if not "", replaces the name of the job.
	Name string
	// Data replaces the job's data. nil: the data stay.
	Data []byte
	// IgnoreRepeat makes NextRun or Delay apply although the job repeats.
	IgnoreRepeat bool
	// Priority, if set, replaces the priority of the job.
	Priority task.Opt[int]
}

// Retry ends the current run of a job and makes the job QUEUED for another one. A job that repeats
// gets the next run of its repeat; any other job runs at NextRun, or after Delay. The time is moved
// into the job's windows. Name, Data and Priority are changed if r sets them.
//
// The job keeps its children and stays the current job of its sequence. A repeat that leads out of
// the years 0000 to 9999 makes it FAILED, without an error. If an answer has come that no worker
// has claimed yet, and r.Token is not 0, the job is made due with that answer. Only Data is then
// stored.
//
// Returns [ErrStale] if r.Token is not the token of the current attempt, and [ErrNotRunning] if the
// job does not run. Returns [ErrParentNotPaused] for a child whose parent is not PAUSED, and
// [ErrKeyTaken] if a key of the job is taken under the new name. Returns [ErrNotFound] for an
// unknown id, a [FieldError] for an invalid field, and errors of the store. The call counts as
// [Stats].Retried, as Failed if the repeat has no next run, or as Stale after ErrStale.
func (s *Service) Retry(ctx context.Context, r Retry) error {
	data, err := rules.CheckGiven(r.Data)
	if err != nil {
		return err
	}
	if r.NextRun, err = rules.CheckTime("nextRun", r.NextRun); err != nil {
		return err
	}
	if err := rules.CheckField("name", r.Name, true); err != nil {
		return err
	}
	if err := rules.CheckPriority(r.Priority); err != nil {
		return err
	}
	if r.Delay < 0 {
		return &FieldError{Field: "delay", Problem: "it is negative"}
	}
	failed := false
	err = s.txn.One(ctx, r.ID, func(ctx context.Context, t *txn.Step, j *Row) error {
		failed = false
		if err := s.checkCanEnd(t, j, r.Token); err != nil {
			return err
		}
		rules.SetData(j, data)
		if r.Token != 0 && rules.IsAnswered(j) && j.Phase == "" {
			return s.deliverAnswer(ctx, t, j)
		}
		if err := s.rename(ctx, t, j, r.Name); err != nil {
			return err
		}
		j.Priority = r.Priority.Or(j.Priority)
		rules.LeaveAttempt(j)
		switch {
		case rules.Repeats(j) && !r.IgnoreRepeat:
			var err error
			if failed, err = s.repeat(ctx, t, j); err != nil {
				return err
			}
			return t.Save(ctx, j)
		case !r.NextRun.IsZero():
			j.NextRun = r.NextRun
		default:
			j.NextRun = rules.Micros(t.Now.Add(r.Delay))
			if !rules.InRange(j.NextRun) {
				return &FieldError{Field: "delay", Problem: rules.Malformed}
			}
		}
		j.State, j.NextRun = Queued, s.windows.Place(j, j.NextRun, t.Now)
		return t.Save(ctx, j)
	})
	if err == nil && failed {
		return s.counted(&s.count.failed, err)
	}
	return s.counted(&s.count.retried, err)
}

// Requeue makes jobs in any state QUEUED, all of them or none. A job becomes WAITING if its
// sequence has another current job. NextRun becomes the time of its creation, or of its last run if
// it repeats, moved into its windows. Earlier runs of a job that repeats are not made up for.
// Attempt starts at 1 again, and Reason is cleared. Data stay. name, if not "", replaces the name
// of all.
//
// Workers that run the jobs can no longer end them. Ids without a job are ignored.
//
// Returns [ErrNotFound] if no job has any of the ids, and a [FieldError] without ids or for an
// invalid name. Returns [ErrKeyTaken] if another job or a waiting task has a key of a job that was
// over or is renamed. Returns errors of the store. Each job counts as [Stats].Requeued.
func (s *Service) Requeue(ctx context.Context, ids []ID, name string) error {
	if len(ids) == 0 {
		return &FieldError{Field: "jobIDs", Problem: rules.Missing}
	}
	if err := rules.CheckField("name", name, true); err != nil {
		return err
	}
	var l txn.Locks
	n := 0
	err := s.txn.Do(ctx, &l, func(ctx context.Context, t *txn.Step) error {
		locked, err := t.Jobs(ctx, ids...)
		if err != nil {
			return err
		}
		if len(locked) == 0 {
			return fmt.Errorf("%w: none of %d ids", ErrNotFound, len(ids))
		}
		found := make([]*Row, 0, len(locked)) // in the order of ids
		for _, id := range slices.Sorted(maps.Keys(locked)) {
			found = append(found, locked[id])
		}
		var more error // All missing locks are noted before the transaction starts again.
		for _, j := range found {
			if err := errors.Join(l.AddSequenceOf(j), l.AddKeys(j, cmp.Or(name, j.Name))); err != nil {
				more = err
			}
		}
		if more != nil {
			return more
		}
		for _, j := range found {
			if err := s.rename(ctx, t, j, name); err != nil {
				return err
			}
			if j.State.Over() {
				if err := t.Free(ctx, j); err != nil {
					return err
				}
			}
			if err := s.enqueue(ctx, t, j); err != nil {
				return err
			}
			rules.StartOver(j)
			due := j.Created
			if j.Repeat != "" && j.Scheduled.After(due) {
				due = j.Scheduled
			}
			j.NextRun, j.Reason = s.windows.Place(j, due, t.Now), ""
			rules.SetData(j, nil)
			if err := t.Save(ctx, j); err != nil {
				return err
			}
		}
		for key := range l.Sequences {
			err := s.promote(ctx, t, key)
			if more = errors.Join(more, err); err != nil && !errors.Is(err, txn.ErrLocks) {
				return err
			}
		}
		if more != nil {
			return more
		}
		n = len(found)
		return nil
	})
	if err == nil {
		s.count.requeued.Add(int64(n))
	}
	return err
}
