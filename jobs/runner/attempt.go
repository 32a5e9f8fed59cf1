package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/errand"
	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

// contentType is the content type of data of jobs.
const contentType = "application/json"

// place is an attempt in place: the handler of a claimed job, and its state.
type place struct {
	*hold
	handler task.Handler
	dialog  *dialog // of a Type; nil: a plain handler
	active  *active
	q       *task.Request
}

// runInPlace runs the next step of a job. It then ends the attempt, or lets the job wait for its
// answer.
func (r *round) runInPlace(h *hold) {
	handler, defaults, ok := r.r.handlers.Lookup(h.Name)
	if !ok {
		r.strange(h)
		return
	}
	p := &place{hold: h, handler: handler, active: r.activate(h)}
	p.dialog, _ = handler.(*dialog)
	p.q = r.request(h, p.active.handout.Data, defaults)
	p.q.Retries = int(max(h.Attempt-1, 0))
	switch {
	case h.Refused != nil:
		r.ran(p, nil, h.Refused)
	case h.Phase == jobs.Answered:
		r.answered(p)
	case h.timedOut():
		r.r.stats.timedOut.Add(1)
		r.ran(p, nil, task.ErrAnswerTimeout)
	default:
		r.runAndEnd(p, p.handler)
	}
}

// activate prepares the values that the handler reads from its context.
func (r *round) activate(h *hold) *active {
	return &active{s: r.s, run: jobs.RunOf(&h.Row), handout: h.Handout, lose: func() { r.lose(h, nil) }}
}

func (r *round) request(h *hold, data []byte, defaults *task.Metadata) *task.Request {
	now := time.Now()
	q := task.NewRequest(&task.Envelope{
		ID: jobs.TaskID(h.Row), Name: h.Name, ContentType: contentType, Args: data, Meta: *defaults, SentAt: h.Scheduled,
	}, func(_ string, data []byte, v any) error { return decode(data, v) })
	q.Generation, q.Deliveries, q.Exact = int(h.Token), 1, true
	q.Received, q.StartedAt, q.NodeID = h.got, now, r.c.NodeID
	return q
}

// decode reads the data of a job into v. Returns an error that wraps [task.ErrBadArgs] if they do
// not fit.
func decode(data []byte, v any) error {
	if err := errand.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%w: %w", task.ErrBadArgs, err)
	}
	return nil
}

// handle runs one function of the job. Each function sees the data that the one before has left.
func (r *round) handle(p *place, fn task.Handler) (any, error) {
	a := p.active.again()
	p.active = a
	ctx, over := p.Begin(task.WithExpecter(context.WithValue(task.WithRequest(r.hard, p.q), activeKey{}, a), a))
	defer over()
	if left, ends := p.left(); ends {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, left, task.ErrAnswerTimeout)
		defer cancel()
	}
	value, err := guard.Apart(ctx, fn, p.q, nil)
	a.end()
	if err != nil && errors.Is(context.Cause(ctx), task.ErrAnswerTimeout) {
		err = fmt.Errorf("%w: %w", task.ErrAnswerTimeout, err)
	}
	return value, err
}

func (r *round) runAndEnd(p *place, fn task.Handler) {
	value, err := r.handle(p, fn)
	r.ran(p, value, err)
}

// ran ends the step by the result of its function.
func (r *round) ran(p *place, value any, err error) {
	if r.interrupted(p, err) {
		return
	}
	o := judge(p.q, value, err)
	if o.State == task.StateFailed && p.dialog != nil && !o.said {
		r.reconsider(p, err, o.Err)
		return
	}
	r.held.Idle(p.hold)
	switch o.State {
	case task.StateSucceeded:
		r.conclude(p.hold, &r.r.stats.ran, func(ctx context.Context) error {
			return r.s.Finish(ctx, jobs.Finish{ID: p.ID, Token: p.Token, Data: o.data, Shared: p.shares()})
		})
	case task.StateAwaiting:
		r.deferred(p, o.Await)
	case task.StateRetrying:
		r.repeat(p, time.Now().Add(o.Delay), nil, o.Err)
	case task.StatePending:
		r.snooze(p, o.Delay)
	default:
		r.fail(p.hold, o.Recorded(), o.data)
	}
}

// interrupted handles the result of a function that was stopped: another worker has the job, its
// lease may have ended, or this runner stops.
func (r *round) interrupted(p *place, err error) bool {
	switch {
	case p.Lost(): // reported already
		r.release(p.hold)
	case err != nil && !defers(err) && (p.Ended() || errors.Is(context.Cause(r.hard), task.ErrShutdown)): // run it again
		// The same attempt goes on: its request may be on its way, and its answer may come.
		if p.Queue != "" || p.active.handout.Key != "" && p.RetryAfter == "" {
			p.Before.State = jobs.Running
		}
		r.held.Idle(p.hold)
		r.giveBack(p.hold)
	default:
		return false
	}
	return true
}

// defers reports whether err is no failure: the request was sent, and another call would send it
// twice.
func defers(err error) bool {
	_, is := task.VerdictOf(err).(*task.DeferVerdict) //nolint:errorlint // the outermost verdict counts
	return is
}

// judgement is the outcome of an attempt.
type judgement struct {
	task.Outcome
	data []byte // of the result
	said bool   // the handler gave a verdict
}

// judge turns the result of a handler into an outcome and data. Methods of the error and the result
// are user code: their panic fails the run.
func judge(q *task.Request, value any, err error) (o judgement) {
	if p := guard.Call(func() error { o = outcome(q, value, err); return nil }); p != nil {
		return judgement{Outcome: task.Outcome{State: task.StateFailed, Err: p}}
	}
	return o
}

func outcome(q *task.Request, value any, err error) (o judgement) {
	if err == nil {
		o.data, err = object(value)
	}
	o.said = task.VerdictOf(err) != nil
	o.Outcome = q.Outcome(err)
	if o.Err != nil {
		o.Err = task.Remote(o.Recorded())
	}
	return o
}
