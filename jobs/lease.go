package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
)

// GiveBack undoes a hand-out that nobody has seen: Run, NextRun and the number of repetitions are what they were before, and the job is due as it was. Token
// and LastRun stay. [ErrStale] says that it has moved on. One that was GivenUp was not handed out, and is left alone.
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
			if j.Queue != "" || j.Key == "" { // else the answer to a request may be on its way
				j.Attempt = max(j.Attempt-1, 0)
			}
		}
		switch h.Before.State {
		case RunQueued:
			j.State, j.NextRun = RunQueued, h.Before.NextRun
		case Running: // the run goes on: who has it next has the same one
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

// returnTimeout is for a store that does not answer.
const returnTimeout = 30 * time.Second

// returned gives back what was taken for nobody. What cannot be given back is told to the log.
func (s *Service) returned(h Handout) {
	ctx, cancel := context.WithTimeout(s.wait.Base, returnTimeout)
	defer cancel()
	if err := s.GiveBack(ctx, h); err != nil {
		s.log.Error("a job that was handed out to nobody could not be given back", "job", int64(h.ID), "name", h.Name, "token", h.Token, "error", err)
	}
}

// Renew has the lease of a job that is RUNNING end after lease from now. One that is RUNQUEUED is handed out again at its NextRun all the same, so that
// only the token is looked at, and no lease is longer than the attempt of a job of a queue. [ErrStale] says that the run is over, or another's.
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
