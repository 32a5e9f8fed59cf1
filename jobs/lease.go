package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
)

// GiveBack undoes a claim that no caller has seen. Run, NextRun and the number of repetitions are
// restored, and the job is due as before. Token and LastRun stay. A job that was GivenUp is left
// alone, since it was not claimed.
//
// Returns [ErrStale] if the job has moved on.
func (s *Service) GiveBack(ctx context.Context, h Handout) error {
	if h.GivenUp {
		return nil
	}
	err := s.txn.One(ctx, h.ID, func(ctx context.Context, t *txn.Step, j *Row) error {
		if err := rules.CheckToken(j, h.Token); err != nil {
			return err
		}
		if !j.State.Runs() {
			return ErrNotRunning
		}
		if rules.AwaitsAnswer(j, t.Now) {
			return fmt.Errorf("%w: job %d awaits its answer", ErrStale, j.ID)
		}
		if rules.IsAnswered(j) {
			return s.goOnWith(ctx, t, j)
		}
		if h.Before.State != Running {
			j.Handouts = max(j.Handouts-1, 0)
			if j.Queue != "" || j.Key == "" { // otherwise the answer to a request may come
				j.Attempt = max(j.Attempt-1, 0)
			}
		}
		switch h.Before.State {
		case RunQueued:
			j.State, j.NextRun = RunQueued, h.Before.NextRun
		case Running: // the run goes on with the next worker
			j.Due = t.Now
		default:
			rules.EndAttempt(j)
			j.State = Queued
			j.Run--
			if j.RetryAfter != "" {
				j.NextRun = j.Scheduled
			}
		}
		return t.Save(ctx, j)
	})
	return s.counted(&s.count.givenBack, err)
}

// returnTimeout bounds a call of a store that does not answer.
const returnTimeout = 30 * time.Second

// returned gives back a claim without a caller. It logs a failure.
func (s *Service) returned(h Handout) {
	ctx, cancel := context.WithTimeout(s.wait.Base, returnTimeout)
	defer cancel()
	if err := s.GiveBack(ctx, h); err != nil {
		s.log.Error("a job that was handed out to nobody could not be given back", "job", int64(h.ID), "name", h.Name, "token", h.Token, "error", err)
	}
}

// Renew makes the lease of a RUNNING job end after lease from now. No lease of a job of a queue is
// longer than its attempt. For a RUNQUEUED job only the token is checked: it is claimed again at
// its NextRun all the same.
//
// Returns [ErrStale] if the run is over, or another worker has it.
func (s *Service) Renew(ctx context.Context, id ID, token int64, lease time.Duration) error {
	if lease <= 0 {
		return &FieldError{Field: "lease", Problem: rules.Malformed}
	}
	err := s.txn.Batch(ctx, &txn.Change{Id: id, Do: func(ctx context.Context, t *txn.Step, j *Row) error {
		changed, err := rules.Renew(j, t.Now, token, lease)
		if !changed {
			return err
		}
		return t.Save(ctx, j)
	}})
	return s.counted(&s.count.renewed, err)
}
