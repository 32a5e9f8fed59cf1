package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/internal/taskio"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

// contentType is the content type of the data of jobs.
const contentType = "application/json"

// attempt is a claimed job whose handler runs in this process.
type attempt struct {
	*heldJob
	handler task.Handler
	dialog  *dialog // of a Type; nil: a plain handler
	active  *active
	q       *task.Request
}

// runInPlace runs the next function of a claimed job: its handler, or Response for an answer. It
// then ends the attempt, or lets the job wait for its answer. It blocks until the result is stored.
func (r *session) runInPlace(h *heldJob) {
	handler, defaults, ok := r.r.handlers.Lookup(h.Name)
	if !ok {
		r.postponeUnknown(h)
		return
	}
	p := &attempt{heldJob: h, handler: handler, active: r.activate(h)}
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

// activate returns the state that the handler reads from its context.
func (r *session) activate(h *heldJob) *active {
	return &active{s: r.s, run: jobs.RunOf(&h.Row), handout: h.Handout, lose: func() { r.lose(h, nil) }}
}

// request returns the task.Request for the handler of a claimed job, with data as arguments.
func (r *session) request(h *heldJob, data []byte, defaults *task.Metadata) *task.Request {
	now := time.Now()
	q := task.NewRequest(&task.Envelope{
		ID: jobs.TaskID(h.Row), Name: h.Name, ContentType: contentType, Args: data, Meta: *defaults, SentAt: h.Scheduled,
	}, func(_ string, data []byte, v any) error { return decode(data, v) })
	q.Generation, q.Deliveries, q.Exact = int(h.Token), 1, true
	q.Received, q.StartedAt, q.NodeID = h.got, now, r.c.NodeID
	return q
}

// decode decodes the data of a job into v. Returns an error that wraps [task.ErrBadArgs] if they do
// not fit.
func decode(data []byte, v any) error {
	if err := taskio.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%w: %w", task.ErrBadArgs, err)
	}
	return nil
}

// handle calls one function of the job with a new context and returns its result. The context ends
// with the lease, the attempt's Deadline or the hard stop. The function sees the data that the
// previous function has stored.
func (r *session) handle(p *attempt, fn task.Handler) (any, error) {
	a := p.active.next()
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

// runAndEnd calls fn and ends the attempt by its result.
func (r *session) runAndEnd(p *attempt, fn task.Handler) {
	value, err := r.handle(p, fn)
	r.ran(p, value, err)
}

// ran ends the attempt by the result of its function: finish, wait for an answer, repeat, snooze or
// fail.
func (r *session) ran(p *attempt, value any, err error) {
	if r.interrupted(p, err) {
		return
	}
	o := judge(p.q, value, err)
	if o.State == task.StateFailed && p.dialog != nil && !o.said {
		r.askRetry(p, err, o.Err)
		return
	}
	r.held.Idle(p.heldJob)
	switch o.State {
	case task.StateSucceeded:
		r.conclude(p.heldJob, &r.r.stats.ran, func(ctx context.Context) error {
			return r.s.Finish(ctx, jobs.Finish{ID: p.ID, Token: p.Token, Data: o.data, Shared: p.shares()})
		})
	case task.StateAwaiting:
		r.deferred(p, o.Await)
	case task.StateRetrying:
		r.repeat(p, time.Now().Add(o.Delay), nil, o.Err)
	case task.StatePending:
		r.snooze(p, o.Delay)
	default:
		r.fail(p.heldJob, o.Recorded(), o.data)
	}
}

// interrupted handles a function that was stopped: another worker has the job, its lease has ended,
// or the runner stops hard. It releases the job or gives it back, and returns true. Otherwise it
// returns false and changes nothing.
func (r *session) interrupted(p *attempt, err error) bool {
	switch {
	case p.Lost(): // reported already
		r.release(p.heldJob)
	// give it back, so that it runs again
	case err != nil && !defers(err) && (p.Ended() || errors.Is(context.Cause(r.hard), task.ErrShutdown)):
		// The same attempt continues: its request may have been sent, and its answer may come.
		if p.Queue != "" || p.active.handout.Key != "" && p.RetryAfter == "" {
			p.Before.State = jobs.Running
		}
		r.held.Idle(p.heldJob)
		r.giveBack(p.heldJob)
	default:
		return false
	}
	return true
}

// defers reports whether err asks to wait for an answer. The request was then sent, and another
// call would send it twice.
func defers(err error) bool {
	_, is := task.VerdictOf(err).(*task.DeferVerdict) //nolint:errorlint // only the outermost one
	return is
}

// judgement is the outcome of an attempt.
type judgement struct {
	task.Outcome
	data []byte // data of the result
	said bool   // the handler returned a verdict
}

// judge converts the result of a handler to an outcome and data. Methods of the error and of the
// result are user code: their panic fails the run.
func judge(q *task.Request, value any, err error) (o judgement) {
	if p := guard.Call(func() error { o = outcome(q, value, err); return nil }); p != nil {
		return judgement{Outcome: task.Outcome{State: task.StateFailed, Err: p}}
	}
	return o
}

// outcome is judge without the recovery of panics.
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
