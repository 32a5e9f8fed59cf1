package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/middleware"
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
	handler  task.Handler
	request  task.Request

	acked bool // before the start, because the task runs at most once
	ended time.Time
}

// clockSkew is how much too early, by this process's clock, a delayed task may come without being sent back: broker and
// producer have clocks of their own.
const clockSkew = time.Second

// handle takes a delivery to its end, or to the point from which its settlement goes on beside the worker.
func (w *worker) handle(d broker.Delivery) {
	q := w.queue
	q.c.cfg.Metrics.Received.Inc(1)
	r, err := q.read(d, w.index)
	if err != nil {
		q.buryUnreadable(d, err)
		return
	}
	r.notifyReceived()
	switch {
	case q.fetch.Err() != nil: // fetched in the same instant as the stop began
		r.unstarted()
	case r.expired():
		q.settleAside(r, verdict{kind: expired, err: task.ErrExpired})
	case r.early():
		r.sendBackUntilDue()
	case r.request.Deliveries > 1 && r.resume():
	case r.request.Deliveries > 1 && q.c.cfg.MaxCrashes > 0 && r.idempotent():
		r.suspect()
	case r.handler == nil:
		r.park()
	default:
		w.execute(r)
	}
}

// read decodes a delivery and merges its metadata.
func (q *queue) read(d broker.Delivery, worker int) (*run, error) {
	m := d.Message()
	e, format, err := q.c.codec.Decode(m)
	if err != nil {
		return nil, err
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
	r := &run{queue: q, worker: worker, delivery: d, message: m, format: format}
	r.request = *task.NewRequest(e, q.c.codec.BindArgs)
	if e.ReplyTo != "" && task.CheckName(e.ReplyTo) != nil { // a message must not choose where in the broker its answer goes
		q.c.cfg.Metrics.Rejected.Inc(1)
		q.c.warnOnce("reply-to", "reply addresses that are no node id are ignored", r.logAttrs()...)
		e.ReplyTo = ""
	}
	req := &r.request
	req.Queue, req.NodeID, req.Generation, req.Received = q.name, q.c.cfg.NodeID, m.Generation, time.Now()
	req.Deliveries, req.Exact = d.Deliveries()
	var definition task.Metadata
	r.handler, definition, _ = q.c.mux.Lookup(e.Name)
	switch {
	case e.Base != nil:
		merged := task.Merge(*e.Base, q.meta, definition, e.Meta)
		req.Effective = &merged
	case !q.meta.IsZero() || !definition.IsZero() && definition != e.Meta: // most often both sides share one definition
		merged := task.Merge(q.meta, definition, e.Meta)
		req.Effective = &merged
	}
	return r, nil
}

// foreignID gives a task of a foreign writer its id: the message's own, where that can be one, else a new one.
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

// buryUnreadable moves a message that nobody can read to the dead letters, byte for byte.
func (q *queue) buryUnreadable(d broker.Delivery, cause error) {
	m := d.Message()
	q.log(slog.LevelError, "message cannot be read and goes to the dead letters",
		slog.String(middleware.LogTaskID, task.Text(m.ID, 128)), slog.Any("error", cause))
	q.c.settling.Go(func() {
		ctx, cancel := context.WithTimeout(q.c.settle, q.c.cfg.StoreRetry)
		defer cancel()
		if !q.persist(ctx, d, "bury", func(ctx context.Context) error { return d.Bury(ctx, cause) }) {
			return
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

func (r *run) early() bool {
	at, ok := r.request.Effective.NotBefore.Get()
	return ok && at.Sub(r.request.Received) > clockSkew
}

// sendBackUntilDue delays a task that came before its time: one of a foreign writer, or beyond what the broker can hold.
func (r *run) sendBackUntilDue() {
	at := r.request.Effective.NotBefore.Or(time.Time{})
	r.queue.c.settling.Go(func() { r.replace(r.queue.source, r.copy(), at, "delay") })
}

// unstarted gives back a task that was fetched and not started.
func (r *run) unstarted() {
	r.queue.c.settling.Go(func() {
		ctx, cancel := context.WithTimeout(r.queue.c.settle, giveBackTimeout)
		defer cancel()
		if err := r.giveBack(ctx); err != nil && !broker.Gone(err) {
			r.log(slog.LevelWarn, "task not given back; the broker will notice", slog.Any("error", err))
		}
	})
}

// giveBack returns the task to its queue without counting anything. A suspect goes back as a copy, so that the broker's
// count of deliveries goes on to mean that it was started alone.
func (r *run) giveBack(ctx context.Context) error {
	r.queue.c.cfg.Metrics.Released.Inc(1)
	if r.acked {
		return nil
	}
	if r.queue.suspects {
		return r.publishCopy(ctx, r.queue.source, r.copy(), time.Time{})
	}
	return r.delivery.Release(ctx, 0)
}

// park puts aside a task that no handler is registered for, so that a consumer that knows it may come; a rolling
// deployment is such a case. In the end it fails.
func (r *run) park() {
	q := r.queue
	e := r.copy()
	if e.Parked >= q.c.cfg.UnknownRetries {
		err := fmt.Errorf("%w: %q", task.ErrUnknownTask, e.Name)
		q.settleAside(r, verdict{kind: failed, err: err, bury: true})
		return
	}
	delay := q.c.cfg.UnknownDelay << min(e.Parked, 16)
	e.Parked++
	at := e.delay(delay)
	q.c.cfg.Metrics.Parked.Inc(1)
	r.log(slog.LevelWarn, "no handler is registered; the task is put aside", slog.Duration("delay", delay))
	q.c.settling.Go(func() {
		if r.replace(q.source, e, at, "park") {
			r.notifyFailed(fmt.Errorf("%w: %q", task.ErrUnknownTask, e.Name), true)
		}
	})
}

// resume looks whether an earlier delivery of the task came as far as its result, and if so goes on from there. A store
// that only sends replies cannot be asked: there the task runs again.
func (r *run) resume() bool {
	store := r.store()
	if store == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(r.queue.c.settle, loadTimeout)
	defer cancel()
	rec, err := store.Load(ctx, r.request.ID)
	if err != nil || !rec.State.Terminal() {
		return false
	}
	v := verdict{kind: succeeded, result: rec.Result, contentType: rec.ContentType, recorded: true}
	if rec.State != task.StateSucceeded {
		v.kind, v.err = failed, errors.New("swarmiji: task "+string(rec.State))
		if rec.Error != nil {
			v.err = rec.Error
		}
	}
	r.queue.settleAside(r, v)
	return true
}

// loadTimeout bounds the look for an earlier result.
const loadTimeout = 5 * time.Second

func (r *run) logAttrs(more ...slog.Attr) []slog.Attr {
	return append(more, slog.String(middleware.LogTaskID, string(r.request.ID)), slog.String(middleware.LogTask, r.request.Name),
		slog.String(middleware.LogQueue, r.queue.name), slog.Int(middleware.LogAttempt, r.request.Retries+1),
		slog.String(middleware.LogNode, r.queue.c.cfg.NodeID))
}

func (r *run) log(level slog.Level, msg string, more ...slog.Attr) {
	r.queue.c.cfg.Logger.LogAttrs(context.Background(), level, msg, r.logAttrs(more...)...)
}
