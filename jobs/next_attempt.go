package jobs

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
)

// NextAttempt ends the current attempt of a running job and makes the job QUEUED for another
// attempt at the given time. A time of zero or in the past means now. The job's windows may move it
// later. data replaces the job's data unless nil. why becomes its Reason, cut to [MaxReason] bytes.
// If counted is false, the ended attempt does not count in Attempt. A token of 0 always matches.
//
// The time from which the job's repeat counts stays. A job of a sequence stays its current job. If
// an answer has come that no worker has claimed yet, the job is made due with that answer instead.
// Only data is then stored.
//
// Returns [ErrStale] if token is not the token of the current attempt, and [ErrNotRunning] if the
// job does not run. Returns [ErrNotFound] for an unknown id and a [FieldError] for invalid data or
// an invalid time. It blocks until the commit, which other changes may share. Returns
// [ErrUnavailable] if ctx ends first; the attempt may then have ended. The call counts as
// [Stats].Retried, or as Stale after ErrStale.
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
