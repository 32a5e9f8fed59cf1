package jobs

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
)

// NextAttempt ends the current attempt of a running job and makes the job QUEUED for another
// attempt at the given time. A time of zero or in the past means now. The job's windows may move it
// later. data replaces the job's data unless nil. why becomes its Reason. If counted is false, the
// ended attempt does not count.
//
// The base of the job's repeat stays, and a job of a sequence stays the current one. If the answer
// to the attempt has come, the job is made due with that answer instead. Only data is then stored.
//
// Returns [ErrStale] if token is not the token of the current attempt, and [ErrNotRunning] if the
// job does not run. The change may share its transaction with others.
func (s *Service) NextAttempt(ctx context.Context, id ID, token int64, at time.Time, data []byte, why string, counted bool) error {
	data, err := rules.CheckGiven(data)
	if err != nil {
		return err
	}
	if at, err = rules.CheckTime("nextRun", at); err != nil {
		return err
	}
	err = s.txn.Batch(ctx, &txn.Change{ID: id, Do: func(ctx context.Context, t *txn.Step, j *Row) error {
		if err := rules.CheckAtWork(j, token); err != nil {
			return err
		}
		rules.SetData(j, data)
		if rules.IsAnswered(j) && j.Phase == "" {
			return s.deliverAnswer(ctx, t, j)
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
