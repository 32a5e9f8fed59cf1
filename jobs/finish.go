package jobs

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Finish describes a run that succeeded.
type Finish struct {
	ID ID
	// Token is the fencing token of the attempt. 0: any caller may.
	Token int64
	// Data replaces the job's data, for its next run or for its parent. nil: the data stay. A job
	// that does not repeat is deleted with its data.
	Data []byte

	// Shared is a hint that the change concerns no other job, and that the job is kept: the change may
	// share its transaction with others.
	Shared bool
}

// Finish ends a run as a success. The first of these rules that fits applies:
//
//   - A job with children that are not over becomes PAUSED until they are. Children that waited for
//     that become QUEUED.
//   - A job that repeats becomes QUEUED for its next run. Data with {"delete":"true"} end its
//     repeating. A next run outside the years 0000 to 9999 makes it FAILED, without an error.
//   - A child becomes FINISHED. Its parent becomes QUEUED if it waits for no other child.
//   - A job with a Queue or a Key becomes FINISHED, and is kept for Config.Keep.
//   - Any other job is deleted.
//
// When the job is over, the next one of its sequence key has its turn. The FINISHED and CANCELLED
// children of the job are deleted, since it has seen them. Returns [ErrOutstanding] if it would be
// deleted and has FAILED children.
func (s *Service) Finish(ctx context.Context, f Finish) error {
	data, err := rules.CheckGiven(f.Data)
	if err != nil {
		return err
	}
	if !f.Shared {
		dropped, err := s.drop(ctx, f.ID, f.Token)
		if err != nil || dropped {
			return s.counted(&s.count.finished, err)
		}
	}
	failed := false
	err = s.txn.OneOrBatch(ctx, f.Shared, f.ID, func(ctx context.Context, t *txn.Step, j *Row) (err error) {
		failed = false
		if err := s.endable(t, j, f.Token); err != nil {
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

// finish ends a run of j as a success; stop ends its repeating. failed reports that its repeat has
// no next run.
func (s *Service) finish(ctx context.Context, t *txn.Step, j *Row, stop bool) (failed bool, err error) {
	if t.Shared() && !rules.StandsAlone(j) {
		return false, txn.ErrAlone
	}
	if j.HasChildren {
		if err := s.clear(ctx, t, j.ID); err != nil {
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

// drop ends a simple job in one step, if the store can.
func (s *Service) drop(ctx context.Context, id ID, token int64) (dropped bool, err error) {
	if s.noDropper.Load() {
		return false, nil
	}
	err = s.c.Store.Single(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		dropped = false
		d, ok := tx.(jobstore.Dropper)
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

// repeat makes j QUEUED for its next run. failed reports that there is none.
func (s *Service) repeat(ctx context.Context, t *txn.Step, j *Row) (failed bool, err error) {
	next, err := s.nextRun(j, t.Now)
	if err != nil {
		return true, s.fail(ctx, t, j, fmt.Sprintf("the repeat %s: %v", j.Repeat, err))
	}
	rules.StartOver(j)
	j.State, j.NextRun = Queued, s.windows.Place(j, next, t.Now)
	return false, nil
}

// pause lets j wait for its children. NextRun becomes LastRun, so that j runs at once when they are
// over.
func (s *Service) pause(ctx context.Context, t *txn.Step, j *Row) error {
	rules.StartOver(j)
	j.State, j.NextRun = Paused, j.LastRun
	if err := t.Save(ctx, j); err != nil {
		return err
	}
	return s.unpause(ctx, t, j.ID)
}

// remove deletes j, which must have no children left.
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
