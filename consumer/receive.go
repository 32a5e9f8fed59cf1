package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// run is one delivery on its way through the consumer.
type run struct {
	queue    *queue
	worker   int // index of the worker that took it
	delivery broker.Delivery
	message  *broker.Message
	format   serializer.Format // it came in, and its copies go out in
	bare     bool              // it came without an envelope: its arguments are a foreign writer's bytes
	handler  task.Handler
	request  task.Request

	veto       error // of a hook, so that it does not run; nil: none
	unreadable error // why its arguments cannot be read, which the handler does not get; nil: they can

	ended    time.Time
	hopeless bool // its settlement was given up

	note    atomic.Pointer[broker.Start] // of this start, open; nil for none. A stop that leaves the handler behind clears it too
	release func()                       // gives back what Config.Admit has taken; nil for nothing
	suspect bool                         // an earlier start ended its process: it runs in quarantine
	checked bool                         // the broker has told that a task that runs at most once was not started
	early   atomic.Bool                  // it has a place among the tasks that are acknowledged before their start

	answer  *answer     // its answer from outside is settled, and no run; nil: it is one
	expects atomic.Bool // its handler has called task.Expect
	stale   atomic.Bool // another delivery of its message has ended or was deferred: this one counts for nothing

	// How far it has come. A stop that leaves a handler behind looks at these from another
	// goroutine.
	acked      atomic.Bool // before the start, because the task runs at most once
	started    atomic.Bool
	over       atomic.Bool         // the handler has returned
	final      atomic.Bool         // its end is in a store that can be asked for it, or was handed on: no other end may follow
	abandoned  atomic.Bool         // a stop has left a trace of it
	unbound    atomic.Bool         // with an error that says that its own arguments do not fit
	terminated atomic.Bool         // a revocation has ended its context
	cut        atomic.Pointer[cut] // of its context; nil: none yet
}

// clockSkew is how much too early, by this process's clock, a task that no broker has held back may
// come and be held here; one that comes still earlier is sent back, once.
const clockSkew = time.Second

// handle takes a delivery to its end, or to the point from which its settlement goes on beside the
// worker.
func (w *worker) handle(q *queue, d broker.Delivery) {
	q.c.cfg.Metrics.Received.Inc(1)
	r, err := q.read(d, w.index)
	if err != nil {
		q.buryUnreadable(d, err)
		return
	}
	r.notifyReceived()
	r.askDequeue()
	switch {
	case !q.takes(): // fetched in the same instant as the stop or the pause began
		r.unstarted()
	case r.request.Copy != "" && r.elsewhere():
	default:
		q.consider(r)
	}
}

// consider looks whether a task has come further already, by an earlier delivery, before all else.
func (q *queue) consider(r *run) {
	switch {
	case r.unreadable != nil:
		q.settleAside(r, verdict{kind: failed, err: fmt.Errorf("%w: %w", task.ErrBadArgs, r.unreadable), bury: true})
	case r.request.Deliveries > 1 && r.deferredBefore():
	case r.mayHaveEnded() && r.resume():
	default:
		q.proceed(r)
	}
}

// mayHaveEnded reports whether the task's end may be recorded already: it was handed out before, or
// it is a copy of a task that runs at most once and became uncertain when the copy was sent.
func (r *run) mayHaveEnded() bool {
	return r.request.Deliveries > 1 || r.message.Generation > 0 && !r.idempotent()
}

// proceed takes a task of which no end is recorded to its start, or to its end without one.
func (q *queue) proceed(r *run) {
	switch {
	case r.request.Deliveries > 1 && !r.idempotent() && !r.checked && r.mayHaveStarted(): // else it would be said never to have run
	case r.revoked(): // settled, or put back
	case r.expired():
		q.settleAside(r, verdict{kind: expired, err: task.ErrExpired})
	case r.premature(): // before a veto, whose delay may be shorter; the hook is asked again then
		r.sendBackUntilDue()
	case r.veto != nil:
		q.settleAside(r, r.judge(nil, r.veto))
	case r.handler == nil:
		r.park()
	default:
		q.execute(r)
	}
}

// read decodes a delivery and merges its metadata.
func (q *queue) read(d broker.Delivery, worker int) (*run, error) {
	m := d.Message()
	bind := q.c.bind
	e, format, bare, err := q.decode(m)
	if err != nil {
		return nil, err
	}
	if bare {
		bind = q.c.codec.BindBare
	}
	unreadable := q.c.codec.Open(q.name, e)
	if unreadable != nil && !errors.Is(unreadable, wire.ErrArgs) {
		return nil, unreadable
	}
	if e.Name == "" {
		if e.Name = q.cfg.Task; e.Name == "" {
			return nil, fmt.Errorf("%w: it names no task, and its queue has none (QueueConfig.Task)", serializer.ErrMalformed)
		}
	}
	if err := task.CheckName(e.Name); err != nil {
		return nil, fmt.Errorf("%w: %w", serializer.ErrMalformed, err)
	}
	if e.ID == "" {
		if e.ID, err = foreignID(m); err != nil {
			return nil, err
		}
	}
	beginLife(e, m, q.c.cfg.Wire.Sealer != nil)
	r := &run{queue: q, worker: worker, delivery: d, message: m, format: format, bare: bare, unreadable: unreadable}
	r.request = *task.NewRequest(e, bind)
	if e.ReplyTo != "" && task.CheckName(e.ReplyTo) != nil { // a message must not choose where in the broker its answer goes
		q.c.cfg.Metrics.Rejected.Inc(1)
		q.c.warnOnce("reply-to", "reply addresses that are no node id are ignored", r.logAttrs()...)
		e.ReplyTo = ""
	}
	req := &r.request
	req.Queue, req.NodeID, req.Generation, req.Received = q.name, q.c.cfg.Report.NodeID, m.Generation, time.Now()
	req.Deliveries, req.Exact = d.Deliveries()
	handler, definition, known := q.c.mux.Lookup(e.Name)
	r.handler = handler
	if r.handler == nil && e.Name == task.GatherName {
		r.handler = task.HandlerFunc(gatherList)
	}
	if q.c.members != nil {
		req.ReadMembers(q.c.members)
	}
	if !known {
		definition = &task.Metadata{}
	}
	switch {
	case e.Base != nil:
		merged := task.Merge(*e.Base, q.meta, *definition, e.Meta)
		req.Effective = &merged
	case !q.meta.IsZero() || !definition.IsZero() && *definition != e.Meta: // most often both sides share one definition
		merged := task.Merge(q.meta, *definition, e.Meta)
		req.Effective = &merged
	}
	return r, nil
}

// decode reads a message. One of a queue of raw work is taken for an envelope only if it says so.
func (q *queue) decode(m *broker.Message) (e *task.Envelope, f serializer.Format, bare bool, err error) {
	if q.cfg.Task != "" {
		return q.c.codec.DecodeRaw(m)
	}
	e, f, err = q.c.codec.Decode(m)
	return e, f, false, err
}

// foreignID gives a task of a foreign writer its id: the message's own, where that can be one, else
// a new one.
func foreignID(m *broker.Message) (task.ID, error) {
	if id := task.ID(m.ID); id.Check() == nil {
		return id, nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("swarmiji: make an id: %w", err)
	}
	return task.ID(id.String()), nil
}

// refusedAgain is after how long a message comes again for which this user lacks a right: to acknowledge it early, or to
// dead-letter what nobody can read.
const refusedAgain = time.Minute

// buryUnreadable moves a message that nobody can read to the dead letters, byte for byte.
func (q *queue) buryUnreadable(d broker.Delivery, cause error) {
	m := d.Message()
	q.log(slog.LevelError, "message cannot be read and goes to the dead letters",
		slog.String(middleware.LogTaskID, utf.Cut(m.ID, 128)), slog.Any("error", cause))
	q.c.settling.Go(func() {
		ctx, cancel := q.insisting()
		defer cancel()
		bury := func(ctx context.Context) error {
			err := d.Bury(ctx, broker.Dead{Reason: cause.Error(), Unreadable: true})
			if workflow.Permanent(err) || errors.Is(err, broker.ErrUnsupported) || errors.Is(err, broker.ErrAccess) { // it makes way for the others, and comes again
				return errors.Join(errDone, d.Release(ctx, refusedAgain))
			}
			return err
		}
		if err := repeat(ctx, d.Lost(), bury, func(err error) { q.log(slog.LevelWarn, "dead-lettering is repeated", slog.Any("error", err)) }); err != nil {
			return // the broker has it back, or the consumer stops
		}
		q.c.cfg.Metrics.Buried.Inc(1)
		q.notifyUnreadable(m, cause)
	})
}

func (r *run) idempotent() bool { return r.request.Effective.Idempotent.Or(true) }

func (r *run) expired() bool {
	at, ok := r.request.Effective.Expires.Get()
	return ok && !at.IsZero() && r.request.Received.After(at)
}

// premature reports whether the task comes before its time. A task that the broker has held back is
// never early: the broker's clock decides.
func (r *run) premature() bool {
	at, ok := r.request.Effective.NotBefore.Get()
	return ok && at.After(r.request.Received) && !wire.Held(r.message, wire.HeaderHeld, at)
}

// sendBackUntilDue delays a task that came before its time: one of a foreign writer or an older
// version, or beyond what the broker can hold.
func (r *run) sendBackUntilDue() {
	at := r.request.Effective.NotBefore.Or(time.Time{})
	r.queue.c.settling.Go(func() {
		if time.Until(at) <= clockSkew {
			r.waitHere(at)
			at = time.Time{}
		}
		r.replace(r.queue.source, r.copy(), at, "delay")
	})
}

// unstarted gives back a task that was fetched and not started.
func (r *run) unstarted() {
	r.freeEarly()
	r.queue.c.settling.Go(r.giveBackForSure)
}

// giveBack returns the task to its queue without counting anything. It keeps its place in front
// where the broker can.
func (r *run) giveBack(ctx context.Context) error {
	switch {
	case r.acked.Load():
		return nil
	case r.answer != nil:
		return r.delivery.Release(ctx, answerAgain)
	}
	r.clearNote(ctx)
	err := r.delivery.Release(ctx, 0)
	if err == nil {
		r.queue.c.cfg.Metrics.Released.Inc(1)
	}
	return err
}

// park puts aside a task that no handler is registered for, so that a consumer that knows it may
// come; a rolling deployment is such a case. In the end it fails.
func (r *run) park() {
	q := r.queue
	e := r.copy()
	if e.Parked >= q.c.cfg.Tuning.UnknownRetries {
		err := fmt.Errorf("%w: %q", task.ErrUnknownTask, e.Name)
		q.settleAside(r, verdict{kind: failed, err: err, bury: true})
		return
	}
	delay := q.c.cfg.Tuning.UnknownDelay << min(e.Parked, 16)
	e.Parked++
	at := e.delay(delay)
	q.c.cfg.Metrics.Parked.Inc(1)
	r.log(slog.LevelWarn, "no handler is registered; the task is put aside", slog.Duration("delay", delay))
	why := fmt.Errorf("parked (%d of %d): %w: %q", e.Parked, q.c.cfg.Tuning.UnknownRetries, task.ErrUnknownTask, e.Name)
	q.c.settling.Go(func() {
		if r.saveParked(why) && r.replace(q.source, e, at, "park") {
			r.notifyFailed(verdict{err: why}, true)
		}
	})
}

// saveParked records why the task waits, for those who wait for it, and reports whether it goes on
// waiting. It is said in the state of a retry, which older processes know as well.
func (r *run) saveParked(why error) bool {
	ctx, cancel := context.WithTimeout(r.queue.c.settle, r.queue.c.cfg.Tuning.StoreRetry)
	defer cancel()
	if store := r.store(); store != nil && resultstore.RepliesOnly(store) { // which carry no retries: this is only a word
		rec, err := r.protected(task.StateRetrying, verdict{err: why}, r.ended)
		if err == nil {
			err = store.Save(ctx, rec)
		}
		if err != nil {
			r.log(slog.LevelWarn, "its submitter is not told that the task is put aside", slog.Any("error", err))
		}
		return true
	}
	v, ok := r.save(ctx, task.StateRetrying, verdict{kind: retry, err: why})
	if ok && v.recorded { // it has ended in another message
		r.queue.settle(r, v)
	}
	return ok && !v.recorded
}

// resume looks whether an earlier delivery of the task came as far as its result, and if so goes on
// from there. A store that only sends replies cannot be asked: there the task runs again.
func (r *run) resume() bool {
	store := r.store()
	if store == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(r.queue.c.settle, loadTimeout)
	defer cancel()
	rec, err := r.load(ctx, store)
	switch {
	case err == nil && r.outlived(&rec):
		r.queue.c.settling.Go(r.drop)
		return true
	case err == nil && rec.State.Terminal() && !r.ofEarlierLife(&rec):
		r.queue.settleAside(r, recorded(&rec))
		return true
	case err == nil, errors.Is(err, resultstore.ErrNotFound), errors.Is(err, resultstore.ErrMalformed):
		return false
	}
	r.queue.c.settling.Go(func() { r.lookUp(store) })
	return true
}

// lookUp goes on with resume until the store answers. The task is not started before.
func (r *run) lookUp(store resultstore.ResultStore) {
	c := r.queue.c
	ctx, cancel := context.WithTimeout(c.settle, c.cfg.Tuning.StoreRetry)
	defer cancel()
	var rec resultstore.Record
	if !r.persist(ctx, "look-up of its result", func(ctx context.Context) (err error) {
		if rec, err = r.load(ctx, store); errors.Is(err, resultstore.ErrNotFound) || errors.Is(err, resultstore.ErrMalformed) {
			return nil
		}
		return err
	}) {
		return
	}
	switch {
	case r.outlived(&rec):
		r.drop()
	case rec.State.Terminal() && !r.ofEarlierLife(&rec):
		r.queue.settle(r, recorded(&rec))
	default:
		r.queue.proceed(r)
	}
}

// recorded is the verdict that an earlier run of the task has come to.
func recorded(rec *resultstore.Record) verdict {
	v := verdict{recorded: true, ran: !rec.StartedAt.IsZero(), result: rec.Result, contentType: rec.ContentType}
	switch rec.State {
	case task.StateSucceeded:
		return v
	case task.StateExpired:
		v.kind, v.err = expired, task.ErrExpired
	case task.StateRevoked:
		v.kind, v.err = revoked, task.ErrRevoked
	default:
		v.kind, v.err = failed, errors.New("swarmiji: task "+string(rec.State))
	}
	if rec.Error != nil {
		v.err = rec.Error
	}
	v.bury = givenUp(v.err)
	return v
}

// loadTimeout bounds the first look for an earlier result, which a worker waits for.
const loadTimeout = 2 * time.Second

func (r *run) logAttrs(more ...slog.Attr) []slog.Attr {
	return append(more, slog.String(middleware.LogTaskID, string(r.request.ID)), slog.String(middleware.LogTask, r.request.Name),
		slog.String(middleware.LogQueue, r.queue.name), slog.Int(middleware.LogAttempt, r.request.Retries+1),
		slog.String(middleware.LogNode, r.queue.c.cfg.Report.NodeID))
}

func (r *run) log(level slog.Level, msg string, more ...slog.Attr) {
	r.queue.c.cfg.Logger.LogAttrs(context.Background(), level, msg, r.logAttrs(more...)...)
}
