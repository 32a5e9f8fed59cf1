package jobs

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/task"
)

// Postpone ends the current attempt of a running job, for another attempt in the same run. The job
// becomes RUNQUEUED and is claimed again after d. A negative d means 0, and d is cut to
// [task.MaxTimeLimit]. If counted is false, the ended attempt does not count in Attempt.
//
// data replaces the job's data unless nil. It must be a JSON object; only the store checks it
// ([ErrBadJob]). If an answer has come that no worker has claimed yet, the job is made due with
// that answer instead. Only data is then stored.
//
// It blocks until the commit. Returns [ErrStale] if token is not 0 and is not the token of the
// current attempt. Returns [ErrNotRunning] if token is 0 and the job does not run, and
// [ErrNotFound] for an unknown id. Returns errors of the store. The call counts as [Stats].Retried,
// or as Stale after ErrStale.
func (s *Service) Postpone(ctx context.Context, id ID, token int64, d time.Duration, data []byte, counted bool) error {
	err := s.txn.One(ctx, id, func(ctx context.Context, t *txn.Step, j *Row) error {
		if err := rules.CheckAtWork(j, token); err != nil {
			return err
		}
		if data != nil {
			j.Data = data
		}
		if rules.IsAnswered(j) && j.Phase == "" {
			return s.deliverAnswer(ctx, t, j)
		}
		rules.LeaveAttempt(j)
		if !counted {
			j.Attempt = max(j.Attempt-1, 0)
		}
		j.State, j.NextRun = RunQueued, rules.Micros(t.Now.Add(min(max(d, 0), task.MaxTimeLimit)))
		return t.Save(ctx, j)
	})
	return s.counted(&s.count.retried, err)
}
