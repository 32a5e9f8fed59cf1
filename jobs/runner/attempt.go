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

// attempt is a claimed job whose attempt this process runs. active is the state that the present
// function of the job uses; each function gets a new one. q is the request that the functions
// receive.
type attempt struct {
	*heldJob
	handler task.Handler
	dialog  *dialog // of a Type; nil: a plain handler
	active  *active
	q       *task.Request
}

// runInPlace runs the next step of a claimed job in this process and ends the attempt. It blocks
// until the end is stored. The steps are:
//
//   - no handler for the name: postponeUnknown;
//   - Handout.Refused is set: the attempt fails with that error, without a call;
//   - an answer or a refusal has come: answered;
//   - the attempt has timed out: it is counted and fails with task.ErrAnswerTimeout, without a
//     call;
//   - else the handler is called: runAndEnd.
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

// activate returns a new state for the handler of a claimed job. FromContext, Progress and Expect
// find it in the context of the handler. Its lose function marks the job as lost (session.lose).
func (r *session) activate(h *heldJob) *active {
	return &active{s: r.s, run: jobs.RunOf(&h.Row), handout: h.Handout, lose: func() { r.lose(h, nil) }}
}

// request returns the task.Request for the handler of a claimed job, with data as arguments and
// defaults as metadata. Its id is the id of the run's task (jobs.TaskID), its Generation the token
// of the claim.
func (r *session) request(h *heldJob, data []byte, defaults *task.Metadata) *task.Request {
	now := time.Now()
	q := task.NewRequest(&task.Envelope{
		ID: jobs.TaskID(h.Row), Name: h.Name, ContentType: contentType, Args: data, Meta: *defaults, SentAt: h.Scheduled,
	}, func(_ string, data []byte, v any) error { return decode(data, v) })
	q.Generation, q.Deliveries, q.Exact = int(h.Token), 1, true
	q.Received, q.StartedAt, q.NodeID = h.got, now, r.c.NodeID
	return q
}

// decode decodes the JSON data of a job into v. Returns an error that wraps [task.ErrBadArgs] if
// the data do not fit.
func decode(data []byte, v any) error {
	if err := taskio.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%w: %w", task.ErrBadArgs, err)
	}
	return nil
}

// handle calls fn, one function of the job, in another goroutine with a new context, and returns
// its result. It blocks until fn returns, or a hard time limit of the metadata passes. A panic
// becomes an error.
//
// The context ends when the job is lost or its lease ends, at the attempt's Deadline, and at the
// hard stop. After the Deadline an error of fn also wraps task.ErrAnswerTimeout. fn sees the data
// that the previous function of this attempt has stored. After the return its calls of Progress and
// Expect return ErrStale.
func (r *session) handle(p *attempt, fn task.Handler) (any, error) {
	a := p.active.next()
	p.active = a
	p.q.AddProgressor(a)
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

// runAndEnd calls fn (handle) and ends the attempt by its result (ran). It blocks until fn has
// returned and the end is stored.
func (r *session) runAndEnd(p *attempt, fn task.Handler) {
	value, err := r.handle(p, fn)
	r.ran(p, value, err)
}

// ran ends the attempt by the result of its function, value and err, and blocks until the end is
// stored. A function that was interrupted ends nothing: see interrupted. Otherwise the result
// decides:
//
//   - success: the run ends, and a value that is a JSON object becomes the data of the job;
//   - task.Defer: the job waits for its answer;
//   - an error with another attempt left, or task.Retry: the attempt is repeated;
//   - task.Snooze: the job is due again later, and the attempt does not count;
//   - any other error: Retry of the job's [Type] decides, else the job becomes FAILED.
//
// A [Type] decides with Retry unless err is an explicit verdict such as task.Fail.
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

// interrupted handles a function that was stopped from outside, and then returns true. Otherwise it
// returns false and changes nothing.
//
// If another worker has the job, interrupted only releases it. If the function failed after its
// lease may have ended, or at the hard stop, giveBack returns the job, which will run again. Its
// attempt then continues if it has a Queue, or a Key without RetryAfter; otherwise Service.GiveBack
// restores the state before the claim. A function that succeeded or returned task.Defer was not
// interrupted.
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

// judgement is the outcome of an attempt: task.Outcome names the next state of the run.
type judgement struct {
	task.Outcome
	// data is the result of the handler as data of the job; nil: the data stay.
	data []byte
	// said reports that the handler returned a verdict, such as task.Fail or task.Retry.
	said bool
}

// judge converts the result of a handler to an outcome and data. It changes nothing. Methods of the
// error and of the result are user code: a panic of them makes the outcome a failure.
func judge(q *task.Request, value any, err error) (o judgement) {
	if p := guard.Call(func() error { o = outcome(q, value, err); return nil }); p != nil {
		return judgement{Outcome: task.Outcome{State: task.StateFailed, Err: p}}
	}
	return o
}

// outcome returns the outcome and the data for the result of a handler. It may panic in methods of
// the result or the error: call judge. A value that cannot be encoded, or is too long, counts as an
// error.
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
