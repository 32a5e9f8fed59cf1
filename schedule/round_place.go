package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/errand"
	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// worker runs what is claimed, in place.
func (r *round) worker() {
	for h := range r.queue {
		r.runInPlace(h)
	}
}

// runInPlace runs one tick and has its claim ended.
func (r *round) runInPlace(h *hold) {
	if h.Lost() {
		r.held.Release(h)
		return
	}
	handler, defaults, ok := r.l.handlers.Lookup(h.content.Job)
	if !ok { // it was there when the tick was taken, and nothing takes handlers away
		r.giveBack([]*hold{h})
		return
	}
	c := &carried{before: r.before(h)}
	q := r.request(h, *defaults)
	if h.content.Overlap == OverlapSkip {
		r.record(h, q, task.StateStarted, nil, nil)
	}
	ctx, over := h.Begin(context.WithValue(task.WithRequest(r.hard, q), carriedKey{}, c))
	began := time.Now()
	value, err := guard.Apart(ctx, handler, q, nil)
	over()
	r.pace.note(time.Since(began))
	r.ran(h, q, c, value, err)
}

// ran ends the claim of a tick that was run.
func (r *round) ran(h *hold, q *task.Request, c *carried, value any, err error) {
	switch {
	case h.Lost(): // told already
		r.held.Release(h)
		return
	case err != nil && errors.Is(context.Cause(r.hard), task.ErrShutdown): // it was interrupted, and is to run again
		r.giveBack([]*hold{h})
		return
	}
	f := Finish{Remove: h.remove, StateOf: h.content.From}
	if err == nil {
		r.l.stats.ran.Add(1)
		f.State = c.left()
		r.record(h, q, task.StateSucceeded, value, nil)
	} else {
		r.l.stats.failed.Add(1)
		r.l.report(ProblemFailed, &h.tick, h.content.Job, err)
		r.record(h, q, task.StateFailed, nil, err)
	}
	r.end(h, f)
}

// before returns the state that the run is given: that of its entry, or of the one that it is a run out of turn of.
func (r *round) before(h *hold) []byte {
	if h.content.From == "" {
		return h.tick.State
	}
	lister, ok := capability.As[Lister](r.c.Store)
	if !ok {
		return nil
	}
	ctx, cancel := r.call()
	defer cancel()
	e, err := lister.Get(ctx, h.content.From)
	if err != nil {
		return nil
	}
	return e.State
}

func (r *round) request(h *hold, defaults task.Metadata) *task.Request {
	now := time.Now()
	q := task.NewRequest(&task.Envelope{
		ID: h.id, Name: h.content.Job, ContentType: contentType, Args: h.content.Args,
		Meta: task.Merge(defaults, h.content.Meta), SentAt: h.tick.Due,
		Correlation: h.content.Correlation, Headers: h.content.Headers,
	}, func(_ string, args []byte, v any) error { return decodeArgs(json.RawMessage(args), v) })
	q.Received, q.StartedAt, q.NodeID, q.Deliveries = now, now, r.c.NodeID, 1
	return q
}

// recordFor bounds how long a result store that is away holds up a run's end.
const recordFor = 10 * time.Second

// record keeps the state of a run, if results are kept. Its token is when the tick was claimed, so that the later of two runs counts.
func (r *round) record(h *hold, q *task.Request, state task.State, value any, err error) {
	if r.c.Results == nil || q.Effective.IgnoreResult.Or(false) && h.content.Overlap == OverlapAllow {
		return
	}
	rec := resultstore.Record{
		ID: h.id, Name: h.content.Job, State: state, Generation: int(q.StartedAt.UnixMilli()), Deliveries: 1,
		StartedAt: q.StartedAt, NodeID: r.c.NodeID, Correlation: h.content.Correlation, TTL: q.Effective.ResultTTL.Or(0),
	}
	if state.Terminal() {
		rec.FinishedAt = time.Now()
		rec.Error = task.Remote(err)
	}
	if state == task.StateSucceeded {
		rec.ContentType = contentType
		if rec.Result, err = errand.Marshal(value); err != nil {
			rec.State, rec.ContentType = task.StateFailed, ""
			rec.Error = task.Remote(fmt.Errorf("%w: %w", task.ErrBadResult, err))
		}
	}
	r.save(h, rec)
}

func (r *round) save(h *hold, rec resultstore.Record) {
	deadline := time.Now().Add(recordFor)
	for attempt := 0; ; attempt++ {
		ctx, cancel := r.call()
		err := r.c.Results.Save(ctx, rec)
		cancel()
		if err == nil || errors.Is(err, resultstore.ErrStale) {
			return
		}
		if !errors.Is(err, resultstore.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) ||
			time.Now().After(deadline) || !wake.Sleep(r.calls, r.c.Backoff.Interval(attempt)) {
			r.c.Logger.Warn("schedule: a result is not kept", "schedule", r.c.Name, "entry", h.tick.ID, "task", string(h.id), "error", err)
			return
		}
	}
}
