package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/internal/errand"
	"github.com/swarmiji/swarmiji/task"
)

// contentType is that of a job's data.
const contentType = "application/json"

// runInPlace runs a job and ends its run.
func (r *round) runInPlace(h *hold) {
	handler, defaults, ok := r.r.handlers.Lookup(h.Name)
	if !ok { // names looked for it, and nothing takes handlers away
		r.giveBack(h)
		return
	}
	a := r.activate(h)
	q := r.request(h, a.handout.Data, defaults)
	if a.extra != nil {
		q.Retries, _ = strconv.Atoi(string(a.extra))
	}
	ctx, over := h.Begin(context.WithValue(task.WithRequest(r.hard, q), activeKey{}, a))
	value, err := errand.Handle(ctx, handler, q)
	over()
	a.end()
	r.ran(h, a, q, value, err)
}

// activate prepares what the handler sees of its job, which is nothing of the attempts that the data count.
func (r *round) activate(h *hold) *active {
	a := &active{s: r.s, run: runOf(&h.Job), handout: h.Handout, lose: func() { r.lose(h, nil) }}
	if n := lookup(h.Data, keyAttempts); n != nil {
		a.extra = n
		a.handout.Data = without(h.Data, keyAttempts)
	}
	return a
}

func (r *round) request(h *hold, data []byte, defaults *task.Metadata) *task.Request {
	now := time.Now()
	q := task.NewRequest(&task.Envelope{
		ID: TaskID(h.Job), Name: h.Name, ContentType: contentType, Args: data, Meta: *defaults, SentAt: h.Scheduled,
	}, func(_ string, data []byte, v any) error { return decode(data, v) })
	q.Generation, q.Deliveries, q.Exact = int(h.Token), 1, true
	q.Received, q.StartedAt, q.NodeID = h.got, now, r.c.NodeID
	return q
}

// decode reads the data of a job into v. Its errors wrap [task.ErrBadArgs].
func decode(data []byte, v any) error {
	if err := errand.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%w: %w", task.ErrBadArgs, err)
	}
	return nil
}

// ran ends an attempt that was run.
func (r *round) ran(h *hold, a *active, q *task.Request, value any, err error) {
	if h.Lost() { // told already
		r.release(h)
		return
	}
	if err != nil && errors.Is(context.Cause(r.hard), task.ErrShutdown) { // it was interrupted, and is to run again
		r.giveBack(h)
		return
	}
	o, data := judge(q, value, err)
	left := a.left(data)
	switch o.State {
	case task.StateSucceeded:
		r.conclude(h, &r.r.stats.ran, func(ctx context.Context) error {
			return r.s.Finish(ctx, Finish{ID: h.ID, Token: h.Token, Data: left})
		})
	case task.StateRetrying, task.StatePending:
		kept := []byte(nil)
		if o.State == task.StateRetrying {
			a.extra = strconv.AppendInt(nil, int64(o.Retries)+1, 10)
			kept = a.kept(a.handout.Data)
		}
		r.conclude(h, &r.r.stats.retried, func(ctx context.Context) error {
			return r.s.postpone(ctx, h.ID, h.Token, o.Delay, kept)
		})
	case task.StateAwaiting:
		r.fail(h, task.ErrNoAnswers, left)
	default:
		r.fail(h, o.Recorded(), left)
	}
}

// left are the data that a run leaves; nil: those that there are.
func (a *active) left(result []byte) []byte {
	if result == nil && a.extra != nil {
		return a.handout.Data
	}
	return result
}

// judge turns what a handler returned into an outcome, and into data. Methods of the error and of the result are user code too: what they panic
// with fails the run.
func judge(q *task.Request, value any, err error) (o task.Outcome, data []byte) {
	defer func() {
		if p := recover(); p != nil {
			o, data = task.Outcome{State: task.StateFailed, Err: fmt.Errorf("%w: %s", task.ErrPanic, task.Describe(p, task.MaxErrorText))}, nil
		}
	}()
	if err == nil {
		data, err = object(value)
	}
	o = q.Outcome(err)
	if o.Err != nil {
		o.Err = task.Remote(o.Recorded())
	}
	return o, data
}
