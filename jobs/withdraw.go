package jobs

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Withdraw makes an open job CANCELLED. A worker that runs it can no longer end it, and a later
// answer counts as late. The next job of its sequence and its waiting parent can then start. A job
// with a Queue or a Key, and no parent, is deleted after Config.Retention, any other job by Delete.
// A CANCELLED job stays so, without an error.
//
// Returns [ErrOver] if the job is FINISHED or FAILED, [ErrHasChildren] if it has children, and
// [ErrNotFound] for an unknown id. Returns errors of the store. If the job belongs to a task with
// conditions ([task.Conditions]), the runner of its queue revokes that task at its next check
// (runner.Config.Sweep). A call without an error counts as [Stats].Withdrawn.
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
