package jobs

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// end makes j over. A kept job without parent and children gets its Expires. Phase becomes Answered
// if the answer of the attempt has come, else "".
func (s *Service) end(ctx context.Context, t *txn.Step, j *Row, state State) error {
	if rules.IsAnswered(j) {
		j.Phase = Answered
	} else {
		j.Phase = ""
	}
	j.State = state
	j.Deadline, j.Expires = time.Time{}, time.Time{}
	if !rules.IsKept(j) || j.Parent != 0 {
		return nil
	}
	if j.HasChildren {
		if left, err := t.Tx.Children(ctx, j.ID, jobstore.Page{Limit: 1}); err != nil || len(left) > 0 {
			return err
		}
	}
	j.Expires = t.Now.Add(s.c.Keep)
	return nil
}

// fail makes j FAILED.
func (s *Service) fail(ctx context.Context, t *txn.Step, j *Row, reason string) error {
	err := s.end(ctx, t, j, Failed)
	j.Reason = rules.CutReason(reason)
	return err
}

// goOn lets j, which has its answer, be claimed to look at it.
func (s *Service) goOn(ctx context.Context, t *txn.Step, j *Row) error {
	if j.Phase != "" || j.State != Running { // its present worker, such as at a timeout, loses it
		j.Token++
	}
	j.State, j.Phase, j.Deadline, j.Due = Running, Answered, time.Time{}, t.Now
	return t.Save(ctx, j)
}
