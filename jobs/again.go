package jobs

import (
	"context"
	"time"
)

// NextAttempt has a job that runs be QUEUED once more, for its next attempt, at a time; zero: now. data replace its own unless they are nil; why is its Reason. counted false: the attempt that
// ends did not count. It does not move the base of its repeat, and keeps its turn in a sequence. If the answer to the attempt has come, the job goes on with that.
func (s *Service) NextAttempt(ctx context.Context, id ID, token int64, at time.Time, data []byte, why string, counted bool) error {
	data, err := checkGiven(data)
	if err != nil {
		return err
	}
	if at, err = checkTime("nextRun", at); err != nil {
		return err
	}
	err = s.txn.shareAll(ctx, &deed{id: id, do: func(ctx context.Context, t *step, j *Row) error {
		if err := j.atWork(token); err != nil {
			return err
		}
		j.give(data)
		if j.answered() && j.Phase == "" {
			return s.goOn(ctx, t, j)
		}
		j.leave()
		if !counted {
			j.Attempt = max(j.Attempt-1, 0)
		}
		if at.Before(t.now) {
			at = t.now
		}
		j.State, j.NextRun, j.Reason = Queued, s.windows.Place(j, at, t.now), cutReason(why)
		return t.save(ctx, j)
	}})
	return s.counted(&s.count.retried, err)
}
