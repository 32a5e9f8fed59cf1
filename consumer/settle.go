package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer/internal/saves"
	"github.com/swarmiji/swarmiji/consumer/internal/steps"
	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/task"
)

// Only this file settles verdicts. The order is always: store the result, publish the successor or
// the retry, acknowledge, send the event. After a crash at any step all steps are repeated.

// kind is the kind of a [verdict].
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

// state returns the terminal state for a verdict of this kind. For kinds that do not end the task
// it returns StateFailed.
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

// verdict says how a task is settled: as the end of the task, as another attempt, or as a wait for
// an answer.
type verdict struct {
	kind        kind
	result      []byte
	contentType string
	err         error
	delay       time.Duration
	limit       task.Opt[int]      // limit of retries, if the outcome sets one
	await       *task.DeferVerdict // the answer that a deferred task waits for
	recorded    bool               // an earlier delivery has stored the result
	ran         bool               // recorded, after a run of the handler
	terminated  bool               // revoked while it ran
	deadLetter  bool               // dead-letter the message instead of acknowledging it
}

// judge returns the verdict for the result and the error of a handler, see [run.verdict]. It
// encodes the result, and turns the error into text once. If a method of the result or the error
// panics, the verdict is a failure with that panic.
func (r *run) judge(result any, err error) (v verdict) {
	if p := guard.Call(func() error { v = r.verdict(result, err); return nil }); p != nil {
		return verdict{kind: failed, err: p}
	}
	return v
}

// verdict returns the verdict for the result and the error of a handler. Without an error it is
// that of success, unless the handler ignored an error of task.Sleep or task.Await. If a stop has
// cancelled the handler, it is giveBack, unless the task was acknowledged or is deferred. Otherwise
// the error and the metadata decide between retry, snooze, deferred and failed, see
// [task.Request.Outcome]. It sets r.unbound to whether the error says that the arguments of this
// task do not fit.
//
// It may panic in methods of the result or the error; call judge instead.
func (r *run) verdict(result any, err error) verdict {
	if err == nil {
		err = r.checkpoints.Unfinished()
	}
	if err == nil {
		return r.success(result)
	}
	// an error of another task that the handler waited for
	_, another := errors.AsType[*task.RemoteError](err)
	r.unbound.Store(errors.Is(err, task.ErrBadArgs) && !another)
	o := r.request.Outcome(err)
	// cancelled by the stop: the error says nothing about the task
	if r.queue.c.work.Err() != nil && !r.acked.Load() && o.State != task.StateAwaiting {
		return verdict{kind: giveBack}
	}
	return r.decided(o)
}

// decided returns the verdict for an outcome other than a success: a retry, a snooze, a deferral or
// a failure. Without Config.Deferrals a deferral is the failure [task.ErrNoAnswers].
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

// success encodes the result and returns the verdict of a success. The serializer is that of the
// metadata, else that of the arguments, else the default one. If that is for raw bytes and cannot
// encode the result, the default one is used. A result that cannot be encoded, or is larger than
// Tuning.MaxResult, fails the task with [task.ErrBadResult]: another run would not help.
//
// If the result is not kept and no task follows, it is not encoded, and the verdict has no result.
// The result of gatherList is kept as it is.
func (r *run) success(result any) verdict {
	if r.store() == nil && len(r.request.Then) == 0 && r.request.Chord == nil {
		return verdict{kind: succeeded} // no reader needs the result
	}
	if same, ok := result.(verbatim); ok {
		return verdict{kind: succeeded, result: same.Data, contentType: same.ContentType}
	}
	c := r.queue.c
	contentType, ok := r.request.Effective.Serializer.Get()
	if !ok && c.codec.Knows(r.request.ContentType) {
		contentType = r.request.ContentType
	}
	data, contentType, err := workflow.Encode(c.codec, contentType, result, c.cfg.Tuning.MaxResult)
	if err != nil {
		return verdict{kind: failed, err: err}
	}
	return verdict{kind: succeeded, result: data, contentType: contentType}
}

// isPlain reports whether settling v needs at most two steps: storing the result and an
// acknowledgement. That is so for a success, failure or revocation, unless one of these must be
// stored or sent: following tasks, a dead letter, a record for a waiting submitter, a deferral, the
// end of a job.
func (r *run) isPlain(v verdict) bool {
	if r.expects.Load() || r.answer != nil || r.mayHaveOpenDeferral(v) || r.submitterStore() != nil || r.hasJob() || r.request.Burst != "" {
		return false
	}
	switch v.kind {
	case succeeded:
		return len(r.request.Then) == 0 && r.request.Chord == nil
	case failed, revoked:
		return !wire.Followed(r.request.Envelope) && !r.deadLetters(v)
	}
	return false
}

// deadLetters reports whether settling v dead-letters the message: v asks for it, or it is a
// failure and the metadata do not forbid it.
func (r *run) deadLetters(v verdict) bool {
	return v.deadLetter || v.kind == failed && r.request.Effective.DeadLetter.Or(true)
}

// settle settles the task by v and blocks until that is done or given up. Each step is repeated for
// up to StoreRetry, which begins with the end of the attempt if its batch has failed. After that
// runStep gives the task back; retryAckedStep continues with a task that was acknowledged before
// its start. settle frees the early slot of the task. It counts a snooze.
//
//   - The broker has taken the task back: settle only logs that.
//   - Another delivery has settled or deferred the task (r.stale): settle only acknowledges.
//   - The attempt has left a deferral: closeExpected ends it first and may settle the task instead.
func (q *queue) settle(r *run, v verdict) {
	defer r.releaseEarlySlot()
	if r.isLost() { // it runs elsewhere: no effect of this run may be visible
		r.log(slog.LevelInfo, "the broker has taken the task back; this attempt is ignored")
		return
	}
	if r.stale.Load() {
		r.discard()
		return
	}
	limit := q.c.cfg.Tuning.StoreRetry
	if r.inBatch {
		limit = max(limit-time.Since(r.ended), min(limit, saves.MaxTime))
	}
	ctx, cancel := context.WithTimeout(q.c.settle, limit)
	defer cancel()
	if q.closeExpected(ctx, r, v) {
		return
	}
	switch v.kind {
	case giveBack:
		r.ensureGivenBack()
	case snooze:
		next := r.next()
		if r.replace(q.name, next, next.SetDelay(v.delay), "snooze") {
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

// settleRetry settles a failed attempt that is retried, and blocks until that is done or given up.
// It stores the state RETRYING, publishes the next message in place of this one, counts, and sends
// the events. ctx limits the repeating of the first step. It stops at the first step that fails:
// runStep has then given the task back, failed it or settled it.
//
// If an enqueue hook vetoes the retry, the task fails. If another delivery has ended the task,
// settleFinal settles it by its stored end. The hooks get the outcome of the publish.
func (q *queue) settleRetry(ctx context.Context, r *run, v verdict) {
	next := r.next()
	next.Retries++
	next.Reason, _ = q.c.shown(v.err)
	after, veto := q.c.enqueued(ctx, q.name, &next.Envelope)
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
	case saved.recorded: // another delivery has ended the task
		q.settleFinal(ctx, r, saved)
		return
	}
	if !r.replace(q.name, next, next.SetDelay(v.delay), "retry") {
		return
	}
	sent = nil
	q.c.cfg.Metrics.Retried.Inc(1)
	q.c.notifySent(q.name, &next.Envelope)
	r.notifyFailed(v, true)
}

// settleFinal settles the end of a task by v, and blocks until that is done or given up. It stores
// the result unless v is recorded already, sends the successors, tells the submitter, and
// acknowledges or dead-letters the message. Then it counts, sends the event and ends the job of the
// task. It stops at the first step that fails: runStep has then given the task back, failed it or
// settled it. If another attempt has stored an end already, it continues with that one, see save.
//
// ctx limits storing the result. The last step has the time Tuning.StoreRetry of its own.
func (q *queue) settleFinal(ctx context.Context, r *run, v verdict) {
	r.final.Store(v.recorded)
	if v.ran {
		r.returned.Store(true) // that run counts among the attempts of the dead letter
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
	if !r.saveForSubmitter(v) {
		return
	}
	// the successors may have used up the time of ctx
	ctx, cancel := context.WithTimeout(q.c.settle, q.c.cfg.Tuning.StoreRetry)
	defer cancel()
	if r.remove(ctx, v) {
		r.settled(v)
	}
}

// settled counts the end of the task by v, sends the event and ends the job of the task. Call it
// after the last step of the settlement.
func (r *run) settled(v verdict) {
	m := r.queue.c.cfg.Metrics
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

// remove acknowledges the message, or dead-letters it if deadLetters says so (deadLetterOrAck). It
// blocks and repeats that until it succeeds or ctx ends. It returns true after a success. A message
// that was acknowledged before its start is not acknowledged again. For a deferral it deletes the
// deferral as well.
//
// It returns false if the settlement must not continue: the broker has taken the message back, or
// runStep has given it back or settled the task.
func (r *run) remove(ctx context.Context, v verdict) bool {
	if r.deadLetters(v) {
		if !r.runStep(ctx, "dead letter", func(ctx context.Context) error { return r.deadLetterOrAck(ctx, v.err) }) {
			return false
		}
		if r.answer == nil {
			return true
		}
	}
	if r.acked.Load() {
		return true
	}
	return r.runStep(ctx, "acknowledgement", r.delivery.Ack)
}

// next returns a copy of the task's envelope for its next message.
func (r *run) next() *steps.Next { return steps.NextOf(r.request.Envelope) }

// replace publishes next to queue and removes the message of r, so that the task continues as next.
// The broker delivers next at the time at; zero: at once. why names the step in the log.
//
// Returns true if it did both. If it returns false, replace has given the task back or settled it,
// or this consumer no longer holds it; the caller only returns. It frees the early slot of the
// task, takes no lock, and blocks while it repeats failed steps for up to StoreRetry. If the broker
// cannot delay messages, it also blocks until at.
//
// For a task that runs at most once it acknowledges before it publishes, unless the broker replaces
// messages in one step. Such a task fails as uncertain if an earlier settlement of its deferral may
// have published next.
func (r *run) replace(queue string, next *steps.Next, at time.Time, why string) bool {
	c := r.queue.c
	// an earlier try may have published it, and the copy may have run
	if r.answer != nil && r.answer.Outcome.Again && !r.idempotent() {
		r.log(slog.LevelError, "an at-most-once task fails as uncertain: an earlier attempt may have published its next message", slog.String("step", why))
		r.settleUncertain()
		return false
	}
	if _, ok := capability.As[broker.Delayer](c.cfg.Broker); !ok {
		r.waitHere(at)
		at = time.Time{}
	}
	defer r.releaseEarlySlot()
	if _, atomic := capability.As[broker.Retrier](c.cfg.Broker); !atomic && !r.idempotent() && !r.acked.Load() && r.answer == nil {
		// Message and copy must not exist together: acknowledge before publishing.
		if !r.queue.acquireEarlySlot(r) {
			r.giveBackUnstarted()
			return false
		}
		if !r.ackEarly() {
			return false
		}
	}
	return settlement{r}.Step(why, func(ctx context.Context) error { return r.publishNext(ctx, queue, next, at) })
}

// publishNext encodes next in the format of the received message and publishes it in place of the
// delivery; at is its earliest delivery. It tries once. The message has the next generation, the
// same priority, key, weight, foreign headers and properties. Headers of the wire package mark a
// delay (HeaderHeld), raw arguments (HeaderBare) and a wait for the rate limit (HeaderTurn). A
// repeated call may publish a second message. If the queue was deleted, publishNext declares it
// again and returns the error; the caller must repeat the call.
//
// Returns errors of the broker, and [workflow.ErrUnsendable] if next cannot be encoded. Returns
// steps.ErrUncertain if a task that runs at most once was published with an unknown outcome, unless
// the broker replaces a delivery in one step.
func (r *run) publishNext(ctx context.Context, queue string, next *steps.Next, at time.Time) error {
	c := r.queue.c
	m, err := c.codec.EncodeAs(r.format, r.queue.name, &next.Envelope, r.arrived)
	if err != nil {
		return fmt.Errorf("%w: %w", workflow.ErrUnsendable, err)
	}
	m.Generation = r.message.Generation + 1
	m.Priority, m.Key, m.Weight = r.message.Priority, r.message.Key, r.message.Weight
	steps.CopyForeign(m, r.message)
	wire.StampHeld(m, wire.HeaderHeld, at)
	if r.bare {
		m.Headers[wire.HeaderBare] = "1" // marks the body as raw arguments despite the envelope
	}
	if next.RateLimited {
		wire.StampHeld(m, wire.HeaderTurn, at)
	}
	out := broker.Outgoing{Queue: queue, Message: m, At: at, Reason: next.Reason}
	switch {
	case r.acked.Load():
		err = broker.PublishAt(ctx, c.cfg.Broker, out)
	case r.answer != nil:
		err = r.answer.Replace(ctx, out)
	default:
		err = broker.Replace(ctx, c.cfg.Broker, r.delivery, out)
	}
	if errors.Is(err, broker.ErrIndeterminate) && !r.idempotent() && (r.acked.Load() || r.answer != nil) {
		return fmt.Errorf("%w: %w", steps.ErrUncertain, err)
	}
	if errors.Is(err, broker.ErrNoQueue) { // the queue was deleted meanwhile
		if derr := broker.Declare(ctx, c.cfg.Broker, broker.Queue{Name: queue, Levels: r.queue.cfg.Levels, Fair: r.queue.cfg.Fair}); derr != nil {
			return errors.Join(err, derr)
		}
	}
	return err
}

// waitHere blocks until at, for brokers that cannot delay messages. Call it on a goroutine of the
// settlement: the worker is free, but the task counts against the prefetch. It returns early if the
// consumer stops or the task is lost. The envelope then tells the next consumer how long to wait.
func (r *run) waitHere(at time.Time) {
	wake.SleepOr(r.queue.fetch, r.lost(), time.Until(at))
}
