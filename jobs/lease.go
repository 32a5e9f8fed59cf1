package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
)

// GiveBack undoes a claim that no caller has received, or that a worker cannot finish. The job is
// due again as before:
//
//   - State and NextRun are restored, and so are Run and the count of claims by RetryAfter.
//   - Attempt is restored unless the job has a Key and no Queue: its answer may still come.
//   - A job that was claimed because its lease had ended is due now, and its attempt continues.
//   - Token and LastRun stay.
//
// If the answer of the job has come, the job is made due with that answer instead. A job with
// GivenUp stays FAILED, without an error.
//
// Returns [ErrStale] if the job was claimed again, awaits its answer, or does not run
// ([ErrNotRunning] if h.Token is 0). Returns [ErrNotFound] if the job does not exist, and errors of
// the store. The call counts as [Stats].GivenBack, or as Stale after ErrStale.
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

// giveBackOrLog gives a claim back that no caller received (GiveBack). It logs an error instead of
// returning it; the job then stays RUNNING until its lease ends. It blocks for at most
// returnTimeout and does not depend on the context of a caller.
func (s *Service) giveBackOrLog(h Handout) {
	ctx, cancel := context.WithTimeout(s.wait.Base, returnTimeout)
	defer cancel()
	if err := s.GiveBack(ctx, h); err != nil {
		s.log.Error("cannot give back a job that no caller has received; it stays RUNNING until its lease ends", "job", int64(h.ID), "name", h.Name, "token", h.Token, "error", err)
	}
}

// Renew extends the lease of a RUNNING job to lease from now. For a job with a Deadline the lease
// ends no later than the Deadline, unless the attempt handles an answer or a timeout. For a
// RUNQUEUED job, and for a job that awaits its answer, only the token is checked. A token of 0
// always matches.
//
// It blocks until the commit, which other changes may share. Returns [ErrStale] if the attempt is
// over or another worker has the job, and [ErrNotFound] if the job does not exist. Returns
// [ErrNotRunning] if token is 0 and the job does not run. Returns [ErrUnavailable] if ctx ends
// first; the lease may then be extended. Returns a [FieldError] unless lease is positive. The call
// counts as [Stats].Renewed, or as Stale after ErrStale.
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
