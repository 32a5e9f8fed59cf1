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

// timedOut reports whether the attempt of a claimed job has timed out, by the store's clock.
func (h *hold) timedOut() bool {
	return h.Phase == jobs.Awaiting || h.Phase == "" && !h.Deadline.IsZero() && !h.Changed.Before(h.Deadline)
}

// left returns the time that a request may still take. ends is false if there is no limit.
func (h *hold) left() (left time.Duration, ends bool) {
	if h.Phase != "" || h.Deadline.IsZero() || h.timedOut() {
		return 0, false
	}
	return h.Deadline.Sub(h.Changed) - time.Since(h.got), true
}

// clockTolerance is the difference between the clocks of this process and the store that is
// ignored.
const clockTolerance = 2 * time.Second

// stored converts a time of this process's clock to the store's clock.
func (h *hold) stored(at time.Time) time.Time {
	if off := h.Changed.Sub(h.got); off > clockTolerance || off < -clockTolerance {
		at = at.Add(off)
	}
	return at.UTC()
}

// errDeferred is the error of a Response that asks to wait for another answer.
var errDeferred = fmt.Errorf("%w: who looks at an answer cannot wait for another one", jobs.ErrUnsupported)

// deferred lets a job wait for its answer. After it, this process holds nothing of the job.
func (r *round) deferred(p *place, v *task.DeferVerdict) {
	if p.Phase == jobs.Answered {
		r.fail(p.hold, errDeferred, nil)
		return
	}
	a := jobs.Await{ID: p.ID, Token: p.Token, Key: v.Key}
	if d, set := v.Timeout.Get(); set { // even with no time left the answer may have come
		a.Timeout = task.Set(max(d, time.Microsecond))
	} else if p.dialog != nil && p.Queue == "" {
		a.Timeout = p.dialog.timeout
	}
	err := r.settle(p.hold, func(ctx context.Context) error {
		_, err := r.s.Await(ctx, a)
		return err
	})
	if err == nil || jobstore.RunOver(err) || !errors.Is(err, jobs.ErrState) && !errors.Is(err, jobs.ErrBadJob) {
		r.concluded(p.hold, &r.r.stats.deferred, err)
		return
	}
	p.Resume() // the key is taken, or empty
	if p.dialog != nil {
		r.reconsider(p, err, err)
		return
	}
	o := judge(p.q, nil, err)
	if o.State == task.StateRetrying {
		r.repeat(p, time.Now().Add(o.Delay), nil, o.Err)
		return
	}
	r.fail(p.hold, err, nil)
}

// answered handles the answer of a job.
func (r *round) answered(p *place) {
	r.r.stats.answered.Add(1)
	switch {
	case p.Answer == nil:
		r.ran(p, nil, task.Rejected(p.Reason))
	// the job began with another registration
	case p.dialog == nil || p.dialog.response == nil:
		r.held.Idle(p.hold)
		r.conclude(p.hold, &r.r.stats.ran, func(ctx context.Context) error {
			return r.s.Finish(ctx, jobs.Finish{ID: p.ID, Token: p.Token, Shared: p.shares()})
		})
	default:
		r.runAndEnd(p, p.dialog.response)
	}
}

// reconsider asks a Type's Retry about an attempt that failed with err. reason is the same error as
// it is stored.
func (r *round) reconsider(p *place, err, reason error) {
	if p.dialog.retry == nil {
		r.held.Idle(p.hold)
		r.fail(p.hold, reason, nil)
		return
	}
	j := p.active.handout.Job
	j.Data, j.Answer = bytes.Clone(j.Data), bytes.Clone(j.Answer)
	f := &Failure[[]byte]{Job: j, Err: err, Attempt: p.q.Retries + 1, Data: j.Data, At: time.Now().Add(task.DefaultRetryDelay)}
	value, wrong := r.handle(p, p.dialog.retry(f))
	if r.interrupted(p, wrong) {
		return
	}
	r.held.Idle(p.hold)
	switch {
	case wrong != nil:
		r.fail(p.hold, fmt.Errorf("%v; it was asked about: %v", judge(p.q, nil, wrong).Err, reason), nil) //nolint:errorlint // the text is what is kept
	case value == true:
		r.repeat(p, f.At, f.Data, reason)
	default:
		r.fail(p.hold, reason, nil)
	}
}

// repeat starts another attempt of a job at a time of this process's clock. In a queue it is
// another run, with its own place in the line; else it is the same run. data replaces the job's
// data unless nil.
func (r *round) repeat(p *place, at time.Time, data []byte, why error) {
	if p.Queue != "" {
		r.conclude(p.hold, &r.r.stats.retried, func(ctx context.Context) error {
			return r.s.NextAttempt(ctx, p.ID, p.Token, p.stored(at), data, why.Error(), true)
		})
		return
	}
	r.conclude(p.hold, &r.r.stats.retried, func(ctx context.Context) error {
		return r.s.Postpone(ctx, p.ID, p.Token, time.Until(at), data, true)
	})
}

// snooze lets a job run later. No attempt is counted.
func (r *round) snooze(p *place, d time.Duration) {
	r.conclude(p.hold, &r.r.stats.retried, func(ctx context.Context) error {
		if p.Queue != "" {
			return r.s.NextAttempt(ctx, p.ID, p.Token, p.stored(time.Now().Add(d)), nil, "", false)
		}
		return r.s.Postpone(ctx, p.ID, p.Token, d, nil, false)
	})
}

// ErrNoHandler is why a job of a queue is postponed: its name has no handler here.
var ErrNoHandler = errors.New("jobs: nothing is registered for this name with the queue's runner")

// strange postpones a job without a handler. Another runner of its queue, with other handlers, may
// have begun it or may come.
func (r *round) strange(h *hold) {
	if h.Queue == "" { // it was found by its name, and handlers are never removed
		r.giveBack(h)
		return
	}
	r.r.report(ProblemUnknown, &h.Row, ErrNoHandler)
	r.conclude(h, &r.r.stats.putOff, func(ctx context.Context) error {
		if h.Phase != "" || h.timedOut() { // keep what the attempt has so far
			return r.s.Renew(ctx, h.ID, h.Token, r.c.PutOff)
		}
		return r.s.NextAttempt(ctx, h.ID, h.Token, h.stored(time.Now().Add(r.c.PutOff)), nil, ErrNoHandler.Error(), false)
	})
}
