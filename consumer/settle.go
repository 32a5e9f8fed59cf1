package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// This file is the one place where verdicts are carried out. The order is always: store the result,
// publish the successor or the retry, acknowledge, send the event. A crash after any step repeats
// from the start.

type kind int

const (
	succeeded kind = iota
	failed
	expired
	revoked
	retry
	snooze
	deferred
	giveBack
)

// state is the terminal state in which a task of this verdict ends.
func (k kind) state() task.State {
	switch k {
	case succeeded:
		return task.StateSucceeded
	case expired:
		return task.StateExpired
	case revoked:
		return task.StateRevoked
	}
	return task.StateFailed
}

// verdict is what becomes of a task.
type verdict struct {
	kind        kind
	result      []byte
	contentType string
	err         error
	delay       time.Duration
	limit       task.Opt[int]      // of retries, where the outcome says so
	await       *task.DeferVerdict // what a deferred task waits for
	recorded    bool               // the result is stored already, by an earlier delivery
	ran         bool               // recorded, and a handler had run
	terminated  bool               // revoked while it ran
	bury        bool               // the message goes to the dead letters instead of being acknowledged
}

// judge turns what a handler returned into a verdict. Methods of the error and of the result are
// user code too: what they panic with fails the task, and what they say is made into text here,
// once.
func (r *run) judge(result any, err error) (v verdict) {
	if p := guard.Call(func() error { v = r.verdict(result, err); return nil }); p != nil {
		return verdict{kind: failed, err: p}
	}
	return v
}

func (r *run) verdict(result any, err error) verdict {
	if err == nil {
		return r.success(result)
	}
	_, another := errors.AsType[*task.RemoteError](err) // of a task that the handler has waited for
	r.unbound.Store(errors.Is(err, task.ErrBadArgs) && !another)
	o := r.request.Outcome(err)
	if r.queue.c.work.Err() != nil && !r.acked.Load() && o.State != task.StateAwaiting { // cancelled by the stop: the error says nothing about the task
		return verdict{kind: giveBack}
	}
	return r.decided(o)
}

// decided is the verdict of an outcome other than a success.
func (r *run) decided(o task.Outcome) verdict {
	switch o.State {
	case task.StateRetrying:
		return verdict{kind: retry, err: task.Remote(o.Recorded()), delay: o.Delay, limit: task.Set(o.Limit)}
	case task.StatePending:
		return verdict{kind: snooze, delay: o.Delay}
	case task.StateAwaiting:
		if r.queue.c.answers == nil {
			return verdict{kind: failed, err: task.Remote(task.ErrNoAnswers)}
		}
		return verdict{kind: deferred, await: o.Await}
	default:
		return verdict{kind: failed, err: task.Remote(o.Recorded()), limit: task.Set(o.Limit)}
	}
}

// success writes the result. One that cannot be written or is too large fails the task: running it
// again would not help.
func (r *run) success(result any) verdict {
	if r.store() == nil && len(r.request.Then) == 0 && r.request.Chord == nil {
		return verdict{kind: succeeded} // nobody will read it
	}
	if same, ok := result.(verbatim); ok {
		return verdict{kind: succeeded, result: same.Data, contentType: same.ContentType}
	}
	c := r.queue.c
	contentType, ok := r.request.Effective.Serializer.Get()
	if !ok && c.codec.Knows(r.request.ContentType) {
		contentType = r.request.ContentType
	}
	data, ct, err := c.codec.Marshal(contentType, result)
	if err != nil && contentType == serializer.ContentRaw {
		data, ct, err = c.codec.Marshal("", result) // raw arguments, a typed result
	}
	switch {
	case err != nil:
		return verdict{kind: failed, err: fmt.Errorf("%w: %w", task.ErrBadResult, err)}
	case len(data) > c.cfg.Tuning.MaxResult:
		return verdict{kind: failed, err: fmt.Errorf("%w: %d bytes, limit %d", task.ErrBadResult, len(data), c.cfg.Tuning.MaxResult)}
	}
	return verdict{kind: succeeded, result: data, contentType: ct}
}

// quick reports whether settling v is only an acknowledgement, which does not wait for anything.
func (r *run) quick(v verdict) bool {
	if r.expects.Load() || r.answer != nil || r.leftOpen(v) || r.awaitedElsewhere() != nil {
		return false
	}
	switch v.kind {
	case succeeded:
		return r.store() == nil && len(r.request.Then) == 0 && r.request.Chord == nil
	case failed, revoked:
		return r.store() == nil && !wire.Followed(r.request.Envelope) && !r.buries(v)
	}
	return false
}

// buries reports whether a task of this verdict goes to the dead letters.
func (r *run) buries(v verdict) bool { return v.bury || v.kind == failed && r.keepsDead() }

// settle carries v out.
func (q *queue) settle(r *run, v verdict) {
	defer r.freeEarly()
	if r.isLost() { // it runs elsewhere, or will: nothing of this run may be seen
		r.log(slog.LevelInfo, "the broker took the task back; this run counts for nothing")
		return
	}
	if r.stale.Load() {
		r.discard()
		return
	}
	ctx := q.c.settle
	if !r.quick(v) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.c.cfg.Tuning.StoreRetry)
		defer cancel()
	}
	if q.concludeExpected(ctx, r, v) {
		return
	}
	switch v.kind {
	case giveBack:
		r.giveBackForSure()
	case snooze:
		next := r.copy()
		if r.replace(q.name, next, next.delay(v.delay), "snooze") {
			q.c.cfg.Metrics.Snoozed.Inc(1)
		}
	case retry:
		q.settleRetry(ctx, r, v)
	case deferred:
		q.settleDeferred(ctx, r, v)
	default:
		q.settleFinal(ctx, r, v)
	}
}

func (q *queue) settleRetry(ctx context.Context, r *run, v verdict) {
	next := r.copy()
	next.Retries++
	next.reason, _ = q.c.shown(v.err)
	after, veto := q.c.beforeEnqueue(ctx, q.name, &next.Envelope)
	if veto != nil {
		q.settleFinal(ctx, r, verdict{kind: failed, err: task.Remote(fmt.Errorf("swarmiji: the retry is vetoed: %w (after: %s)", veto, v.err.Error())), limit: v.limit})
		return
	}
	sent := workflow.ErrNotSent
	defer func() { after(sent) }()
	saved, ok := r.save(ctx, task.StateRetrying, v)
	switch {
	case !ok:
		return
	case saved.recorded: // another delivery of the task has come to its end
		q.settleFinal(ctx, r, saved)
		return
	}
	if !r.replace(q.name, next, next.delay(v.delay), "retry") {
		return
	}
	sent = nil
	q.c.cfg.Metrics.Retried.Inc(1)
	q.c.notifySent(q.name, &next.Envelope)
	r.notifyFailed(v, true)
}

func (q *queue) settleFinal(ctx context.Context, r *run, v verdict) {
	r.final.Store(v.recorded)
	if v.ran {
		r.over.Store(true) // that run counts among the attempts of a letter
	}
	if !v.recorded {
		var ok bool
		if v, ok = r.save(ctx, v.kind.state(), v); !ok {
			return
		}
	}
	if !r.publishSuccessors(v) {
		return
	}
	r.final.Store(true)
	if !r.tellSubmitter(v) {
		return
	}
	if !r.quick(v) { // what follows may have taken its time
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(q.c.settle, q.c.cfg.Tuning.StoreRetry)
		defer cancel()
	}
	if !r.remove(ctx, v) {
		return
	}
	m := q.c.cfg.Metrics
	switch v.kind {
	case succeeded:
		m.Succeeded.Inc(1)
		r.notifySucceeded(v)
	case expired:
		m.Expired.Inc(1)
		r.notifyRevoked(false, true)
	case revoked:
		m.Revoked.Inc(1)
		r.notifyRevoked(v.terminated, false)
	default:
		m.Failed.Inc(1)
		r.notifyFailed(v, false)
	}
	r.endJob(v)
}

// remove acknowledges or dead-letters the delivery and reports whether it was still ours.
func (r *run) remove(ctx context.Context, v verdict) bool {
	if r.buries(v) {
		if !r.persist(ctx, "dead letter", func(ctx context.Context) error { return r.bury(ctx, v.err) }) {
			return false
		}
		if r.answer == nil {
			return true
		}
	}
	if r.acked.Load() {
		return true
	}
	err := r.delivery.Ack(ctx)
	if err == nil || broker.Gone(err) {
		return err == nil
	}
	return r.persist(ctx, "acknowledgement", r.delivery.Ack)
}

// successive is the envelope of a task's next message.
type successive struct {
	task.Envelope
	reason string // of a retry: why the task has failed, as events show it
	turn   bool   // it waits for its rate
}

// copy returns the envelope of the task's next message. Older versions counted crashes there.
func (r *run) copy() *successive {
	next := &successive{Envelope: *r.request.Envelope}
	next.Crashes = 0
	return next
}

// delay says that the next start is d from now, and returns that moment. It travels in the envelope
// too, for brokers that cannot wait as long.
func (e *successive) delay(d time.Duration) time.Time {
	if d <= 0 {
		e.Meta.NotBefore = task.Opt[time.Time]{}
		return time.Time{}
	}
	return e.until(time.Now().Add(d))
}

// until says that the next start is not before at. It returns that moment as it travels: rounded up
// to milliseconds.
func (e *successive) until(at time.Time) time.Time {
	at = at.Add(at.Add(time.Millisecond - 1).Truncate(time.Millisecond).Sub(at)) // it keeps its monotonic reading
	e.Meta.NotBefore = task.Set(at)
	return at
}

// replace puts the next message of the task in the place of this one and reports whether it did.
func (r *run) replace(queue string, next *successive, at time.Time, why string) bool {
	c := r.queue.c
	if r.answer != nil && r.answer.outcome.Again && !r.idempotent() { // an earlier try may have sent it, and it may have run since
		r.log(slog.LevelError, "a task that runs at most once is uncertain: an earlier try may have sent its next message", slog.String("step", why))
		r.settleUncertain()
		return false
	}
	if _, ok := capability.As[broker.Delayer](c.cfg.Broker); !ok {
		r.waitHere(at)
		at = time.Time{}
	}
	defer r.freeEarly()
	if _, atomic := capability.As[broker.Retrier](c.cfg.Broker); !atomic && !r.idempotent() && !r.acked.Load() && r.answer == nil {
		// The copy and the message must not both be there: first the one goes, then the other comes.
		if !r.queue.reserveEarly(r) {
			r.unstarted()
			return false
		}
		if !r.ackEarly() {
			return false
		}
	}
	ctx, cancel := context.WithTimeout(c.settle, c.cfg.Tuning.StoreRetry)
	defer cancel()
	return r.persist(ctx, why, func(ctx context.Context) error { return r.publishCopy(ctx, queue, next, at) })
}

// publishCopy writes next in the format the task came in, with the next generation, and publishes it in the place of the
// delivery. Repeating it may queue a second message, which at least once allows. A task that runs at most once is uncertain
// after an unknown outcome, unless the broker replaces a delivery in one step. Where it does not, replace has acknowledged it.
func (r *run) publishCopy(ctx context.Context, queue string, next *successive, at time.Time) error {
	c := r.queue.c
	m, err := c.codec.EncodeAs(r.format, r.queue.name, &next.Envelope)
	if err != nil {
		return fmt.Errorf("%w: %w", workflow.ErrUnsendable, err)
	}
	m.Generation = r.message.Generation + 1
	m.Priority = r.message.Priority
	r.keepForeign(m)
	wire.StampHeld(m, wire.HeaderHeld, at)
	if r.bare {
		m.Headers[wire.HeaderBare] = "1" // beside the header of the envelope
	}
	if next.turn {
		wire.StampHeld(m, wire.HeaderTurn, at)
	}
	out := broker.Outgoing{Queue: queue, Message: m, At: at, Reason: next.reason}
	switch {
	case r.acked.Load():
		err = broker.PublishAt(ctx, c.cfg.Broker, out)
	case r.answer != nil:
		err = r.answer.replace(ctx, out)
	default:
		err = broker.Replace(ctx, c.cfg.Broker, r.delivery, out)
	}
	if errors.Is(err, broker.ErrIndeterminate) && !r.idempotent() {
		if r.acked.Load() || r.answer != nil {
			return fmt.Errorf("%w: %w", errUncertain, err)
		}
	}
	if errors.Is(err, broker.ErrNoQueue) { // the queue was deleted meanwhile
		if derr := broker.Declare(ctx, c.cfg.Broker, broker.Queue{Name: queue, Levels: r.queue.cfg.Levels}); derr != nil {
			return errors.Join(err, derr)
		}
	}
	return err
}

// waitHere holds a task back for a broker that cannot. The worker is free meanwhile, the prefetch
// is not. A stop ends the waiting: the envelope says how long the next consumer has to wait.
func (r *run) waitHere(at time.Time) {
	wake.SleepOr(r.queue.fetch, r.lost(), time.Until(at))
}

// keepForeign takes over what a foreign writer put around the body, such as a trace in the headers.
// A time to live of the message itself is not: it would end a delay too early, and the envelope has
// its own. Nor is a content encoding: the copy is written as the envelope is.
func (r *run) keepForeign(m *broker.Message) {
	for k, v := range r.message.Headers {
		if _, ours := m.Headers[k]; !ours {
			if m.Headers == nil {
				m.Headers = make(map[string]any, len(r.message.Headers))
			}
			m.Headers[k] = v
		}
	}
	for k, v := range r.message.Properties {
		if _, ours := m.Properties[k]; !ours && k != "expiration" && k != "content-encoding" {
			if m.Properties == nil {
				m.Properties = make(map[string]string, len(r.message.Properties))
			}
			m.Properties[k] = v
		}
	}
}
