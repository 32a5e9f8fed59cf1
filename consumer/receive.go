package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer/internal/answers"
	"github.com/swarmiji/swarmiji/consumer/internal/checkpoints"
	"github.com/swarmiji/swarmiji/consumer/internal/crashes"
	"github.com/swarmiji/swarmiji/consumer/internal/intx"
	"github.com/swarmiji/swarmiji/consumer/internal/runs"
	"github.com/swarmiji/swarmiji/consumer/internal/steps"
	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/internal/progress"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// run holds the state of one delivery from its receipt to the end of its settlement.
type run struct {
	queue    *queue
	delivery broker.Delivery
	message  *broker.Message
	format   serializer.Format // format of the message; its copies use the same
	arrived  *wire.Value       // the arguments as they arrived, if compressed; copies send them again
	handler  task.Handler
	request  task.Request

	veto       error // error of a dequeue hook: the handler must not run
	unreadable error // why the arguments cannot be read; the handler does not run

	ended      time.Time
	crash      crashes.State                     // the notes of its starts
	admissions runs.Admissions                   // what Config.Admit has returned
	progress   atomic.Pointer[progress.Reporter] // nil: its handler has reported no progress
	// the deferral that this run settles; nil: a message of the broker
	answer      *answers.Claim
	inTx        intx.State // its handler may settle it in a transaction
	checkpoints checkpoints.Attempt

	// The small fields stand together, so that each run needs less memory.
	worker           int32       // index of the worker that received it
	bare             bool        // the message has no envelope: its body is the arguments
	inBatch          bool        // settlePlain has added its record to a batch
	unsendable       bool        // the settlement failed for good: see failUnsendable
	notStartedBefore bool        // the broker has confirmed that no earlier delivery has started
	hasEarlySlot     atomic.Bool // it holds one of q.earlySlots
	expects          atomic.Bool // its handler has called task.Expect
	stale            atomic.Bool // another delivery has settled or deferred the task: ignore this one

	// Progress of the run. A stop that leaves a handler behind reads these fields from another
	// goroutine.
	acked    atomic.Bool // before the start, because the task runs at most once
	started  atomic.Bool
	returned atomic.Bool // the handler has returned
	// its end is stored or its successors are sent: no other end may follow
	final        atomic.Bool
	abandoned    atomic.Bool                  // recordAbandoned was called
	unbound      atomic.Bool                  // its error says that its own arguments do not fit
	terminated   atomic.Bool                  // a revocation has ended its context
	cancellation atomic.Pointer[cancellation] // ends the context of the handler; nil: not set yet
}

// clockSkew limits the time that a task may wait in this process, by the clock of this process, if
// it comes too early. A task that comes earlier than that is sent back to the broker once. Tasks
// that the broker held back are exempt.
const clockSkew = time.Second

// handle decodes a delivery, counts it, sends the event of its receipt, calls the dequeue hooks,
// and starts or settles its task. It blocks the worker while the handler runs. Settlements that
// take time run on other goroutines, and so do these:
//
//   - A message that cannot be decoded is dead-lettered.
//   - If the queue is paused or the consumer stops, the task is given back.
//   - A successor that runs or ran from another message is dropped, see dropIfOtherCopy.
func (q *queue) handle(d broker.Delivery, worker int) {
	q.c.cfg.Metrics.Received.Inc(1)
	r, err := q.read(d, worker)
	if err != nil {
		q.deadLetterUnreadable(d, err)
		return
	}
	r.notifyReceived()
	if q.c.dequeued != nil {
		r.veto = q.c.dequeued(task.WithRequest(q.c.work, &r.request), &r.request)
	}
	switch {
	case !q.accepts(): // fetched in the moment in which the stop or the pause began
		r.giveBackUnstarted()
	case r.request.Copy != "" && r.dropIfOtherCopy():
	default:
		q.settleEarlier(r)
	}
}

// startOrSettle starts the task (execute), or settles it on another goroutine without a start:
//
//   - An earlier delivery of an at-most-once task may have started it: see settleIfStarted.
//   - It is revoked, expired, or vetoed by a dequeue hook (settled like an error of the handler).
//   - The revocations cannot be read, or the task comes too early: a later copy replaces it.
//   - Tasks of this name are paused: see moveIfPaused.
//   - The task has no handler here: it is delayed, see park.
//
// It may block until the handler has returned.
func (q *queue) startOrSettle(r *run) {
	switch {
	// first, since the other cases record that the task never ran
	case r.request.Deliveries > 1 && !r.idempotent() && !r.notStartedBefore && r.settleIfStarted():
	case r.settleIfRevoked(): // settled or put back
	case r.expired():
		q.settleAsync(r, verdict{kind: expired, err: task.ErrExpired})
	case r.premature(): // before the veto, whose delay may be shorter; the hook is asked again later
		r.delayUntilDue()
	case r.moveIfPaused():
	case r.veto != nil:
		q.settleAsync(r, r.judge(nil, r.veto))
	case r.handler == nil:
		r.park()
	default:
		q.execute(r)
	}
}

// read decodes a delivery and returns a run with the merged metadata, the handler (nil if none is
// registered) and the request. It begins the new life of a requeued task, see package lives. A
// message without a task name gets QueueConfig.Task, one without an id that of steps.ForeignID. It
// counts a malformed reply address, logs it once and ignores it. worker is the receiver's index, or
// 0.
//
// Returns an error if the message is malformed, cannot be opened, or has no valid task name. It
// does not fail for unreadable arguments but stores their error in r.unreadable.
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
	arrived, unreadable := q.c.codec.OpenArrived(q.name, e)
	if unreadable != nil && !errors.Is(unreadable, wire.ErrArgs) {
		return nil, unreadable
	}
	if e.Name == "" {
		if e.Name = q.cfg.Task; e.Name == "" {
			return nil, fmt.Errorf("%w: the message names no task, and its queue has no QueueConfig.Task", serializer.ErrMalformed)
		}
	}
	if err := task.CheckName(e.Name); err != nil {
		return nil, fmt.Errorf("%w: %w", serializer.ErrMalformed, err)
	}
	if e.ID == "" {
		if e.ID, err = steps.ForeignID(m); err != nil {
			return nil, err
		}
	}
	wire.BeginLife(e, m, q.c.cfg.Wire.Sealer != nil)
	r := &run{queue: q, worker: int32(worker), delivery: d, message: m, format: format, bare: bare, arrived: arrived, unreadable: unreadable}
	r.request = *task.NewRequest(e, bind)
	// a message must not choose the broker address of its result
	if e.ReplyTo != "" && task.CheckName(e.ReplyTo) != nil {
		q.c.cfg.Metrics.Rejected.Inc(1)
		q.c.warnOnce("reply-to", "a reply address that is not a node id is ignored", r.logAttrs()...)
		e.ReplyTo = ""
	}
	req := &r.request
	req.Queue, req.NodeID, req.Generation, req.Received = q.name, q.c.cfg.Report.NodeID, m.Generation, time.Now()
	req.Deliveries, req.Exact = d.Deliveries()
	req.SettleBy(r)
	r.checkpoints.Begin(&q.c.checkpoints, req)
	req.BatchIn(q.in)
	req.AddProgressor(r)
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
	// usually both sides share one definition
	case !q.meta.IsZero() || !definition.IsZero() && *definition != e.Meta:
		merged := task.Merge(q.meta, *definition, e.Meta)
		req.Effective = &merged
	}
	return r, nil
}

// decode decodes a message and returns the errors of the codec. In a queue with QueueConfig.Task, a
// message that does not declare itself an envelope is taken as raw arguments; bare is then true. f
// is the format of the message.
func (q *queue) decode(m *broker.Message) (e *task.Envelope, f serializer.Format, bare bool, err error) {
	if q.cfg.Task != "" {
		return q.c.codec.DecodeRaw(m)
	}
	e, f, err = q.c.codec.Decode(m)
	return e, f, false, err
}

// noAccessDelay is the time after which a message is delivered again for which this user lacks a
// permission: to acknowledge it early, or to dead-letter it.
const noAccessDelay = time.Minute

// deadLetterUnreadable dead-letters a message that cannot be decoded, unchanged, with cause as the
// reason. It logs that and returns at once. Another goroutine repeats the dead-lettering until it
// succeeds, and then counts it and sends the event. It ends without that if the broker takes the
// message back or the consumer stops.
//
// If the broker cannot dead-letter it or denies access, the message is released for noAccessDelay
// instead.
func (q *queue) deadLetterUnreadable(d broker.Delivery, cause error) {
	m := d.Message()
	q.log(slog.LevelError, "the message cannot be decoded and is dead-lettered",
		slog.String(middleware.LogTaskID, utf.Cut(m.ID, 128)), slog.Any("error", cause))
	q.settling.Go(func() {
		ctx, cancel := q.untilStop()
		defer cancel()
		deadLetter := func(ctx context.Context) error {
			err := d.DeadLetter(ctx, broker.Dead{Reason: cause.Error(), Unreadable: true})
			// let other messages pass; this one comes again
			if workflow.Permanent(err) || errors.Is(err, broker.ErrUnsupported) || errors.Is(err, broker.ErrAccess) {
				return errors.Join(steps.ErrDone, d.Release(ctx, noAccessDelay))
			}
			return err
		}
		if err := steps.Repeat(ctx, d.Lost(), deadLetter, func(err error) {
			q.log(slog.LevelWarn, "dead-lettering failed; it is repeated", slog.Any("error", err))
		}); err != nil {
			return // the broker has the message back, or the consumer stops
		}
		q.c.cfg.Metrics.DeadLettered.Inc(1)
		q.notifyUnreadable(m, cause)
	})
}

// idempotent reports whether the task may run more than once, by its metadata. Default: true.
func (r *run) idempotent() bool { return r.request.Effective.Idempotent.Or(true) }

// expired reports whether the task was received after its expiry. It returns false for a task
// without an expiry.
func (r *run) expired() bool {
	at, ok := r.request.Effective.Expires.Get()
	return ok && !at.IsZero() && r.request.Received.After(at)
}

// premature reports whether the task was received before its earliest start. It returns false for a
// task that the broker has held back until then: the clock of the broker decides.
func (r *run) premature() bool {
	at, ok := r.request.Effective.NotBefore.Get()
	return ok && at.After(r.request.Received) && !wire.Held(r.message, wire.HeaderHeld, at)
}

// delayUntilDue replaces the message of a premature task by a copy for the time when the task is
// due, on another goroutine (see replace). If the task is due within clockSkew, that goroutine
// waits here first, and the copy is due at once.
//
// Premature tasks come from foreign writers and older versions, or have delays that are too long
// for the broker.
func (r *run) delayUntilDue() {
	at := r.request.Effective.NotBefore.Or(time.Time{})
	r.queue.settling.Go(func() {
		if time.Until(at) <= clockSkew {
			r.waitHere(at)
			at = time.Time{}
		}
		r.replace(r.queue.source, r.next(), at, "delay")
	})
}

// giveBackUnstarted frees the early slot of a task that has not started and returns the task to its
// queue on another goroutine. It repeats that until it succeeds, the broker takes the task back, or
// the consumer stops.
func (r *run) giveBackUnstarted() {
	r.releaseEarlySlot()
	r.queue.settling.Go(r.ensureGivenBack)
}

// giveBack returns the task to its queue without counting an attempt, and clears the note of its
// start. It tries once, counts a success as released, and returns the error of the broker. Where
// the broker can, the task keeps its position at the front. For a task that was acknowledged before
// its start it does nothing and returns nil. A deferral is only released for answers.RetryDelay.
func (r *run) giveBack(ctx context.Context) error {
	switch {
	case r.acked.Load():
		return nil
	case r.answer != nil:
		return r.delivery.Release(ctx, answers.RetryDelay)
	}
	r.queue.c.crashes.Clear(ctx, crashRun{r})
	err := r.delivery.Release(ctx, 0)
	if err == nil {
		r.queue.c.cfg.Metrics.Released.Inc(1)
	}
	return err
}

// park delays a task without a handler, so that a consumer with the handler may start, as in a
// rolling deployment. Each delay is twice as long as the last one. It counts and logs that and
// returns. On another goroutine it stores the reason, replaces the message by a delayed copy, and
// sends the event of a failed attempt.
//
// After Tuning.UnknownRetries delays the task fails and is dead-lettered, on another goroutine.
func (r *run) park() {
	q := r.queue
	e, unknown := r.next(), steps.Unknown(r.request.Name, q.name, q.c.Names())
	if e.Parked >= q.c.cfg.Tuning.UnknownRetries {
		q.settleAsync(r, verdict{kind: failed, err: unknown, deadLetter: true})
		return
	}
	delay := q.c.cfg.Tuning.UnknownDelay << min(e.Parked, 16)
	e.Parked++
	at := e.SetDelay(delay)
	q.c.cfg.Metrics.Parked.Inc(1)
	r.log(slog.LevelWarn, "no handler is registered; the task is delayed", slog.Duration("delay", delay))
	why := fmt.Errorf("parked (%d of %d): %w", e.Parked, q.c.cfg.Tuning.UnknownRetries, unknown)
	q.settling.Go(func() {
		if r.saveParked(why) && r.replace(q.source, e, at, "park") {
			r.notifyFailed(verdict{err: why}, true)
		}
	})
}

// saveParked stores why the task is delayed, as the state of a retry, which older versions know as
// well. It blocks while it repeats that for up to StoreRetry. Returns true if the task is still to
// be delayed.
//
// Returns false if another message has ended the task, which saveParked then settles by that end.
// Also returns false if the state could not be stored; the task is then given back. With a store
// that only sends replies it tries once, logs an error, and returns true.
func (r *run) saveParked(why error) bool {
	ctx, cancel := context.WithTimeout(r.queue.c.settle, r.queue.c.cfg.Tuning.StoreRetry)
	defer cancel()
	// such a store keeps no retries: it only informs the submitter
	if store := r.store(); store != nil && resultstore.RepliesOnly(store) {
		rec, err := r.protectedRecord(task.StateRetrying, verdict{err: why}, r.ended)
		if err == nil {
			err = store.Save(ctx, rec)
		}
		if err != nil {
			r.log(slog.LevelWarn, "the submitter was not told that the task is delayed", slog.Any("error", err))
		}
		return true
	}
	v, ok := r.save(ctx, task.StateRetrying, verdict{kind: retry, err: why})
	if ok && v.recorded { // the task has ended in another message
		r.queue.settle(r, v)
	}
	return ok && !v.recorded
}

// logAttrs appends the id, name, queue and attempt of the task and the node to more.
func (r *run) logAttrs(more ...slog.Attr) []slog.Attr {
	return append(more, slog.String(middleware.LogTaskID, string(r.request.ID)), slog.String(middleware.LogTask, r.request.Name),
		slog.String(middleware.LogQueue, r.queue.name), slog.Int(middleware.LogAttempt, r.request.Retries+1),
		slog.String(middleware.LogNode, r.queue.c.cfg.Report.NodeID))
}

// log logs msg with the attributes of logAttrs.
func (r *run) log(level slog.Level, msg string, more ...slog.Attr) {
	r.queue.c.cfg.Logger.LogAttrs(context.Background(), level, msg, r.logAttrs(more...)...)
}
