package jobs

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
)

// NextAttempt ends an attempt of a running job and makes the job QUEUED for its next one at a time;
// zero: now. data replaces its data unless nil. why is its Reason. If counted is false, the ended
// attempt is not counted.
//
// It does not move the base of its repeat, and keeps its turn in a sequence. If the answer to the
// attempt has come, the job goes on with the answer instead.
func (s *Service) NextAttempt(ctx context.Context, id ID, token int64, at time.Time, data []byte, why string, counted bool) error {
	data, err := rules.CheckGiven(data)
	if err != nil {
		return err
	}
	if at, err = rules.CheckTime("nextRun", at); err != nil {
		return err
	}
	err = s.txn.Batch(ctx, &txn.Change{Id: id, Do: func(ctx context.Context, t *txn.Step, j *Row) error {
		if err := rules.CheckAtWork(j, token); err != nil {
			return err
		}
		rules.SetData(j, data)
		if rules.IsAnswered(j) && j.Phase == "" {
			return s.goOn(ctx, t, j)
		}
		rules.LeaveAttempt(j)
		if !counted {
			j.Attempt = max(j.Attempt-1, 0)
		}
		if at.Before(t.Now) {
			at = t.Now
		}
		j.State, j.NextRun, j.Reason = Queued, s.windows.Place(j, at, t.Now), rules.CutReason(why)
		return t.Save(ctx, j)
	}})
	return s.counted(&s.count.retried, err)
}
