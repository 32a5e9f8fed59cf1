package jobs

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// end changes j to state, in which it is over. It clears Deadline and does not save j. Phase
// becomes Answered if the answer of the attempt has come, else "".
//
// Expires becomes the end of Config.Retention for a job with a Queue or a Key that has no parent
// and no stored children. It becomes zero for any other job, whose record then stays. Returns the
// error of reading the children; j is then changed without Expires.
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
	j.Expires = t.Now.Add(s.c.Retention)
	return nil
}

// fail changes j to FAILED, as end does, and sets its Reason to reason, cut to MaxReason bytes. It
// does not save j. Returns the error of end; j is FAILED nevertheless.
func (s *Service) fail(ctx context.Context, t *txn.Step, j *Row, reason string) error {
	err := s.end(ctx, t, j, Failed)
	j.Reason = rules.CutReason(reason)
	return err
}

// deliverAnswer makes j, whose answer has come, RUNNING with Phase Answered and due now, without a
// Deadline. It saves j. A worker then claims j and handles the answer.
//
// It increases the token unless j is RUNNING with an empty Phase. So a worker that has claimed j
// for a timeout can no longer end the attempt. Returns the error of saving j.
func (s *Service) deliverAnswer(ctx context.Context, t *txn.Step, j *Row) error {
	// The worker that has the job, such as for a timeout, loses it.
	if j.Phase != "" || j.State != Running {
		j.Token++
	}
	j.State, j.Phase, j.Deadline, j.Due = Running, Answered, time.Time{}, t.Now
	return t.Save(ctx, j)
}
