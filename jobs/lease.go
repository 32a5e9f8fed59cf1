package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
)

// GiveBack undoes a claim that no caller has received, or that a worker cannot finish. The job is
// due again as before. Run, NextRun and the count of claims are restored; Token and LastRun stay. A
// job with GivenUp stays unchanged, since it was not claimed. If the answer of the job has come,
// the job is made due with that answer.
//
// Returns [ErrStale] if the job was claimed again or awaits its answer, and [ErrNotRunning] if it
// does not run.
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
			return s.redeliverAnswer(ctx, t, j)
		}
		if h.Before.State != Running {
			j.Handouts = max(j.Handouts-1, 0)
			if j.Queue != "" || j.Key == "" { // otherwise the answer to a request may still come
				j.Attempt = max(j.Attempt-1, 0)
			}
		}
		switch h.Before.State {
		case RunQueued:
			j.State, j.NextRun = RunQueued, h.Before.NextRun
		case Running: // the next worker continues the attempt
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

// returnTimeout limits giveBackOrLog when the store does not reply.
const returnTimeout = 30 * time.Second

// giveBackOrLog gives a claim back that no caller received. It logs an error. It does not depend on
// the context of a caller.
func (s *Service) giveBackOrLog(h Handout) {
	ctx, cancel := context.WithTimeout(s.wait.Base, returnTimeout)
	defer cancel()
	if err := s.GiveBack(ctx, h); err != nil {
		s.log.Error("cannot give back a job that no caller has received; it stays RUNNING until its lease ends", "job", int64(h.ID), "name", h.Name, "token", h.Token, "error", err)
	}
}

// Renew extends the lease of a RUNNING job to lease from now. For a job of a queue the lease ends
// no later than the Deadline of its attempt. For a RUNQUEUED job, and for a job that awaits its
// answer, only the token is checked.
//
// Returns [ErrStale] if the attempt is over or another worker has the job. lease must be positive.
// The change may share its transaction with others.
func (s *Service) Renew(ctx context.Context, id ID, token int64, lease time.Duration) error {
	if lease <= 0 {
		return &FieldError{Field: "lease", Problem: rules.Malformed}
	}
	err := s.txn.Batch(ctx, &txn.Change{ID: id, Do: func(ctx context.Context, t *txn.Step, j *Row) error {
		changed, err := rules.Renew(j, t.Now, token, lease)
		if !changed {
			return err
		}
		return t.Save(ctx, j)
	}})
	return s.counted(&s.count.renewed, err)
}
