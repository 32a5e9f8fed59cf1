package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/internal/taskio"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// worker runs the ticks of r.queue in place, which means in this process, until the queue is
// closed. A tick is one run of an entry that this listener has claimed.
func (r *runner) worker() {
	for h := range r.queue {
		r.runInPlace(h)
	}
}

// runInPlace runs the handler of one tick and then calls finishRun, which stores the result and
// ends the claim. It blocks until the handler has returned. With OverlapSkip it first records the
// run as started in the result store.
//
// If another listener has claimed the tick before the start, it only removes the tick from the held
// ones. A panic of the handler becomes an error.
func (r *runner) runInPlace(h *hold) {
	if h.Lost() {
		r.held.Release(h)
		return
	}
	handler, defaults, ok := r.l.handlers.Lookup(h.content.Job)
	if !ok { // Cannot happen: checkRunnable found the handler, and handlers are never removed.
		r.release([]*hold{h})
		return
	}
	c := &runState{before: r.stateBefore(h)}
	q := r.request(h, *defaults)
	if h.content.Overlap == OverlapSkip {
		r.record(h, q, task.StateStarted, nil, nil)
	}
	ctx, over := h.Begin(context.WithValue(task.WithRequest(r.hard, q), runStateKey{}, c))
	began := time.Now()
	value, err := guard.Apart(ctx, handler, q, nil)
	over()
	r.pace.note(time.Since(began))
	r.finishRun(h, q, c, value, err)
}

// finishRun records the result of a run and requests the end of the claim of its tick, which the
// goroutine of finishLoop executes later; see sendFinish. err is the error of the handler.
//
//   - If another listener has claimed the tick, it only removes the tick from the held ones.
//   - If the handler failed after the end of ShutdownTimeout, it releases the tick, which runs
//     again. It counts and records nothing.
//   - After another failure it counts and reports the failure, records it in the result store, and
//     requests the end of the claim. The carried state stays as it was.
//   - After a success it counts the run, records the result, and requests the end of the claim.
//     That end stores the state that the handler has set.
//
// Nothing is recorded without a result store, or if the task ignores its result; see record. If the
// entry has no further run, the end of the claim deletes the entry. If r.calls ends first, the
// claim ends only with its lease, and the tick runs again.
//
// It blocks while the result store fails, up to recordFor, while the channel of finishLoop is full,
// and while it releases a tick, see releaseAfter.
func (r *runner) finishRun(h *hold, q *task.Request, c *runState, value any, err error) {
	switch {
	case h.Lost(): // renew has reported it
		r.held.Release(h)
		return
	// It was interrupted and must run again.
	case err != nil && errors.Is(context.Cause(r.hard), task.ErrShutdown):
		r.release([]*hold{h})
		return
	}
	f := Finish{Remove: h.remove, StateOf: h.content.From}
	if err == nil {
		r.l.stats.ran.Add(1)
		f.State = c.stateToStore()
		r.record(h, q, task.StateSucceeded, value, nil)
	} else {
		r.l.stats.failed.Add(1)
		r.l.report(ProblemFailed, &h.tick, h.content.Job, err)
		r.record(h, q, task.StateFailed, nil, err)
	}
	r.sendFinish(h, f)
}

// stateBefore returns the carried state ([SetState]) that the run starts with. It is the state of
// the tick's entry, or of the original entry if [Schedule.RunNow] made the tick's entry. It asks
// the store for the original entry, waits for at most one lease, and returns nil if that cannot be
// read.
func (r *runner) stateBefore(h *hold) []byte {
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

// request returns the request for the handler of h, received and started now. SentAt is the due
// time of the tick, Deliveries is 1. The call's metadata take precedence over the handler's
// defaults. The request decodes its arguments with decodeArgs.
func (r *runner) request(h *hold, defaults task.Metadata) *task.Request {
	now := time.Now()
	q := task.NewRequest(&task.Envelope{
		ID: h.id, Name: h.content.Job, ContentType: contentType, Args: h.content.Args,
		Meta: task.Merge(defaults, h.content.Meta), SentAt: h.tick.Due,
		Correlation: h.content.Correlation, Headers: h.content.Headers,
	}, func(_ string, args []byte, v any) error { return decodeArgs(json.RawMessage(args), v) })
	q.Received, q.StartedAt, q.NodeID, q.Deliveries = now, now, r.c.NodeID, 1
	return q
}

// recordFor limits how long an unavailable result store delays the end of a run.
const recordFor = 10 * time.Second

// record stores the state and result of a run in the result store. It does nothing without a result
// store, and if the task ignores its result and has no overlap policy. It blocks as save does.
//
// A value that cannot be encoded as JSON is recorded as a failure with task.ErrBadResult. The
// record's generation is the start time of the run, so the record of a later run replaces it.
func (r *runner) record(h *hold, q *task.Request, state task.State, value any, err error) {
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
		if rec.Result, err = taskio.Marshal(value); err != nil {
			rec.State, rec.ContentType = task.StateFailed, ""
			rec.Error = task.Remote(fmt.Errorf("%w: %w", task.ErrBadResult, err))
		}
	}
	r.save(h, rec)
}

// save stores a result record. It blocks and retries for up to recordFor while the result store is
// unavailable or does not answer within a lease. The end of r.calls, or any other error, ends that
// at once. If the record cannot be stored, it logs a warning. A record that the result store
// refuses as older than its own is dropped silently.
func (r *runner) save(h *hold, rec resultstore.Record) {
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
			r.c.Logger.Warn("schedule: the result of a run could not be stored", "schedule", r.c.Name, "entry", h.tick.ID, "task", string(h.id), "error", err)
			return
		}
	}
}
