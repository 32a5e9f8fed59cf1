package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// timedOut reports whether the current attempt had passed its deadline, without an answer, when
// this runner claimed the job. The clock is the store's. A job in Phase Awaiting is claimed only
// for that reason.
func (h *heldJob) timedOut() bool {
	return h.Phase == jobs.Awaiting || h.Phase == "" && !h.Deadline.IsZero() && !h.Changed.Before(h.Deadline)
}

// left returns the time until the Deadline of the attempt, which may be negative. ends is false if
// no time limit applies. No limit applies to a job without a Deadline, for the handling of an
// answer, and after a timeout.
func (h *heldJob) left() (left time.Duration, ends bool) {
	if h.Phase != "" || h.Deadline.IsZero() || h.timedOut() {
		return 0, false
	}
	return h.Deadline.Sub(h.Changed) - time.Since(h.got), true
}

// clockTolerance is the difference between the clocks of this process and of the store that is
// ignored.
const clockTolerance = 2 * time.Second

// stored converts a time of this process's clock to the store's clock, in UTC. A difference of the
// clocks up to clockTolerance is ignored.
func (h *heldJob) stored(at time.Time) time.Time {
	if off := h.Changed.Sub(h.got); off > clockTolerance || off < -clockTolerance {
		at = at.Add(off)
	}
	return at.UTC()
}

// errDeferred is the error of a Response that asks to wait for another answer.
var errDeferred = fmt.Errorf("%w: a Response cannot wait for another answer", jobs.ErrUnsupported)

// deferred ends an attempt whose handler returned task.Defer: it stores that the job waits for its
// answer (Service.Await) and releases the job. It counts the attempt as deferred. A stored early
// answer takes effect at once. It blocks until the store replies or the runner ends its calls.
//
// The verdict's Timeout limits the wait; below 1 µs it becomes 1 µs. Without it the Timeout of the
// [Type] applies to a job without a queue. Otherwise Await chooses the limit.
//
//   - The job was claimed with an answer: it cannot wait again and becomes FAILED.
//   - The service refuses, for example because the key is taken: the attempt fails. Retry of the
//     job's Type or the task's metadata decide about another attempt.
//   - The attempt is over: the job is marked as lost.
//   - The store does not reply until the runner stops: the failure is logged.
func (r *session) deferred(p *attempt, v *task.DeferVerdict) {
	if p.Phase == jobs.Answered {
		r.fail(p.heldJob, errDeferred, nil)
		return
	}
	a := jobs.Await{ID: p.ID, Token: p.Token, Key: v.Key}
	if d, set := v.Timeout.Get(); set { // even if no time is left: the answer may have come
		a.Timeout = task.Set(max(d, time.Microsecond))
	} else if p.dialog != nil && p.Queue == "" {
		a.Timeout = p.dialog.timeout
	}
	err := r.settle(p.heldJob, func(ctx context.Context) error {
		_, err := r.s.Await(ctx, a)
		return err
	})
	if err == nil || jobstore.RunOver(err) || !errors.Is(err, jobs.ErrState) && !errors.Is(err, jobs.ErrBadJob) {
		r.concluded(p.heldJob, &r.r.stats.deferred, err)
		return
	}
	p.Resume() // the key is taken or empty
	if p.dialog != nil {
		r.askRetry(p, err, err)
		return
	}
	o := judge(p.q, nil, err)
	if o.State == task.StateRetrying {
		r.repeat(p, time.Now().Add(o.Delay), nil, o.Err)
		return
	}
	r.fail(p.heldJob, err, nil)
}

// answered handles the answer of a claimed job and adds one to Stats.Answered.
//
//   - A refusal is an error of the attempt: task.ErrRejected with its reason.
//   - An answer goes to Response of the job's [Type]; the result ends the attempt.
//   - Without a Response the answer ends the run as a success, and the data stay.
//
// It blocks until the result is stored.
func (r *session) answered(p *attempt) {
	r.r.stats.answered.Add(1)
	switch {
	case p.Answer == nil:
		r.ran(p, nil, task.Rejected(p.Reason))
	// the job began under another registration
	case p.dialog == nil || p.dialog.response == nil:
		r.held.Idle(p.heldJob)
		r.conclude(p.heldJob, &r.r.stats.ran, func(ctx context.Context) error {
			return r.s.Finish(ctx, jobs.Finish{ID: p.ID, Token: p.Token, Shared: p.shares()})
		})
	default:
		r.runAndEnd(p, p.dialog.response)
	}
}

// askRetry calls Retry of the job's [Type] for an attempt that failed with err. If Retry returns
// true, the attempt is repeated at the time and with the data that Retry has set. If it returns
// false, panics, or does not exist, the job becomes FAILED. reason is err in the form in which it
// is stored.
//
// If Retry is interrupted (see interrupted), the job is given back or released instead. p.dialog
// must not be nil. It blocks until Retry has returned and the end is stored.
func (r *session) askRetry(p *attempt, err, reason error) {
	if p.dialog.retry == nil {
		r.held.Idle(p.heldJob)
		r.fail(p.heldJob, reason, nil)
		return
	}
	j := p.active.handout.Job
	j.Data, j.Answer = bytes.Clone(j.Data), bytes.Clone(j.Answer)
	f := &Failure[[]byte]{Job: j, Err: err, Attempt: p.q.Retries + 1, Data: j.Data, At: time.Now().Add(task.DefaultRetryDelay)}
	value, wrong := r.handle(p, p.dialog.retry(f))
	if r.interrupted(p, wrong) {
		return
	}
	r.held.Idle(p.heldJob)
	switch {
	case wrong != nil:
		r.fail(p.heldJob, fmt.Errorf("%v; Retry was called for: %v", judge(p.q, nil, wrong).Err, reason), nil) //nolint:errorlint // the text is what is kept
	case value == true:
		r.repeat(p, f.At, f.Data, reason)
	default:
		r.fail(p.heldJob, reason, nil)
	}
}

// repeat ends the attempt as counted and makes the job due again at the time at, by this process's
// clock. A job of a queue becomes QUEUED for another attempt, with the Reason why (NextAttempt).
// Any other job becomes RUNQUEUED in the same run (Postpone), and why is not stored. data replaces
// the job's data unless nil. It blocks until the end is stored (conclude). If the service refuses
// the change, the job becomes FAILED.
func (r *session) repeat(p *attempt, at time.Time, data []byte, why error) {
	if p.Queue != "" {
		r.conclude(p.heldJob, &r.r.stats.retried, func(ctx context.Context) error {
			return r.s.NextAttempt(ctx, p.ID, p.Token, p.stored(at), data, why.Error(), true)
		})
		return
	}
	r.conclude(p.heldJob, &r.r.stats.retried, func(ctx context.Context) error {
		return r.s.Postpone(ctx, p.ID, p.Token, time.Until(at), data, true)
	})
}

// snooze ends the attempt and makes the job due again after d, QUEUED in a queue and else
// RUNQUEUED. The attempt does not count against the allowed ones. Stats count it as retried. It
// blocks until the end is stored (conclude). If the service refuses the change, the job becomes
// FAILED.
func (r *session) snooze(p *attempt, d time.Duration) {
	r.conclude(p.heldJob, &r.r.stats.retried, func(ctx context.Context) error {
		if p.Queue != "" {
			return r.s.NextAttempt(ctx, p.ID, p.Token, p.stored(time.Now().Add(d)), nil, "", false)
		}
		return r.s.Postpone(ctx, p.ID, p.Token, d, nil, false)
	})
}

// ErrNoHandler is the Reason of a job of a queue that is postponed because its name has no handler
// in the queue's runner.
var ErrNoHandler = errors.New("jobs: the queue's runner has no handler for this name; register one")

// postponeUnknown handles a claimed job whose name has no handler here.
//
// A job of a queue is reported as ProblemUnknown and becomes QUEUED again after Config.PutOff, with
// the Reason [ErrNoHandler]. The attempt does not count. Another runner of the queue may have the
// handler. If the job has an answer or has timed out, only its lease is extended by PutOff, so that
// this result stays. A job without a queue goes to giveBack. It blocks until the store replies.
func (r *session) postponeUnknown(h *heldJob) {
	if h.Queue == "" { // The job was found by its name, and handlers are never removed.
		r.giveBack(h)
		return
	}
	r.r.report(ProblemUnknown, &h.Row, ErrNoHandler)
	r.conclude(h, &r.r.stats.putOff, func(ctx context.Context) error {
		if h.Phase != "" || h.timedOut() { // keep the result of the attempt so far
			return r.s.Renew(ctx, h.ID, h.Token, r.c.PutOff)
		}
		return r.s.NextAttempt(ctx, h.ID, h.Token, h.stored(time.Now().Add(r.c.PutOff)), nil, ErrNoHandler.Error(), false)
	})
}
