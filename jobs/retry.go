package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/task"
)

// Retry describes a running job that becomes QUEUED again.
type Retry struct {
	ID ID
	// Token is the fencing token of the attempt. 0: any caller may.
	Token int64
	// NextRun is when it runs again, rounded up to a microsecond, if it does not repeat. Zero: after Delay.
	NextRun time.Time
	// Delay is the wait from now, not negative. It is added to the store's time and rounded up.
	Delay time.Duration
	// Name, if not "", replaces the job's.
	Name string
	// Data replaces the job's data. nil: the data stay.
	Data []byte
	// IgnoreRepeat: NextRun or Delay count although it repeats.
	IgnoreRepeat bool
	// Priority, if set, replaces the job's.
	Priority task.Opt[int]
}

// Retry makes a running job QUEUED: for its next run by its repeat, else at NextRun, else after
// Delay. It keeps its turn in a sequence, and its children. A repeat that leads out of the years
// 0000 to 9999 makes it FAILED, without an error.
//
// A job of a queue runs again in its windows. If the answer to the attempt has come, the job goes
// on with the answer instead.
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
		return &FieldError{Field: "delay", Problem: "negative"}
	}
	failed := false
	err = s.txn.One(ctx, r.ID, func(ctx context.Context, t *txn.Step, j *Row) error {
		failed = false
		if err := s.endable(t, j, r.Token); err != nil {
			return err
		}
		rules.SetData(j, data)
		if r.Token != 0 && rules.IsAnswered(j) && j.Phase == "" {
			return s.goOn(ctx, t, j)
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

// Requeue makes jobs QUEUED in any state, all of them or none. NextRun becomes the time of their
// creation. Their workers cannot end them any more. A job whose sequence key another job has
// becomes WAITING. name, if not "", replaces their name. Ids without a job are ignored.
//
// Returns [ErrNotFound] if none of the jobs exists, and [ErrKeyTaken] if another job has the key of
// one that was over.
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
		found, err := t.Tx.Jobs(ctx, ids...)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("%w: none of %d ids", ErrNotFound, len(ids))
		}
		var more error // all missing locks are noted before the next try
		for i := range found {
			if err := errors.Join(l.AddSequenceOf(&found[i]), l.AddKeys(&found[i], cmp.Or(name, found[i].Name))); err != nil {
				more = err
			}
		}
		if more != nil {
			return more
		}
		for i := range found {
			j := &found[i]
			if err := s.rename(ctx, t, j, name); err != nil {
				return err
			}
			if j.State.Over() {
				if err := t.Free(ctx, j); err != nil {
					return err
				}
			}
			if err := s.queue(ctx, t, j); err != nil {
				return err
			}
			rules.StartOver(j)
			j.NextRun, j.Reason = s.windows.Place(j, j.Created, t.Now), ""
			rules.SetData(j, nil)
			if err := t.Save(ctx, j); err != nil {
				return err
			}
		}
		for key := range l.Sequences {
			if err := s.promote(ctx, t, key); err != nil {
				return err
			}
		}
		n = len(found)
		return nil
	})
	if err == nil {
		s.count.requeued.Add(int64(n))
	}
	return err
}
