package jobs

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Withdraw makes a job CANCELLED that is not over; who runs it has lost its run, and an answer that comes for it is late. One that is CANCELLED already stays so, which is
// no error; [ErrOver] says that it has come to another end, [ErrHasChildren] that it has children. Its parent does not wait for it any more, and the next one of its sequence key has
// its turn. A task with conditions whose job it is ends as revoked when the runner of its queue looks next (runner.Config.Sweep). A job that has a Queue or a Key is kept for Config.Keep, any other until it is deleted.
func (s *Service) Withdraw(ctx context.Context, id ID) error {
	err := s.txn.One(ctx, id, func(ctx context.Context, t *txn.Step, j *Row) error {
		switch {
		case j.State == Cancelled:
			return nil
		case j.State.Over():
			return fmt.Errorf("%w: job %d is %s", ErrOver, id, j.State)
		}
		if j.HasChildren {
			left, err := t.Tx.Children(ctx, id, jobstore.Page{Limit: 1})
			if err != nil {
				return err
			}
			if len(left) > 0 {
				return fmt.Errorf("%w: job %d", ErrHasChildren, id)
			}
		}
		rules.SetData(j, nil)
		if j.State.Runs() {
			j.Token++
		}
		if err := s.end(ctx, t, j, Cancelled); err != nil {
			return err
		}
		return t.Save(ctx, j)
	})
	return s.counted(&s.count.withdrawn, err)
}
