package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer/internal/intake"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// answer is a deferral that was received because its answer came, or did not come in time.
//
// It implements [broker.Delivery] for the settlement of the task. Its methods settle the deferral
// in the store of deferrals, since the broker no longer has the message.
type answer struct {
	c           *Consumer
	claim       deferral.Delivery
	outcome     deferral.Outcome
	message     *broker.Message
	deliveries  int
	atMostOnce  bool
	handlerTime time.Duration // how long the handler ran
	published   int           // generation of the published retry; 0: no retry was published
	settled     atomic.Bool
}

var _ broker.Delivery = (*answer)(nil)

// Message returns the message of the task that the deferral stores. restore sets it.
func (w *answer) Message() *broker.Message { return w.message }

// Deliveries returns how often the broker had delivered the message when the task was deferred.
func (w *answer) Deliveries() (n int, exact bool) { return w.deliveries, true }

// Lost returns a channel that is closed when the claim of the deferral is lost.
func (w *answer) Lost() <-chan struct{} { return w.claim.Lost() }

// Ack deletes the deferral and sets w.settled. It blocks and repeats that until the store has done
// it, the claim is lost or ctx ends. Returns the last error then, or [broker.ErrLeaseLost].
func (w *answer) Ack(ctx context.Context) error { return w.settleClaim(ctx, w.claim.Ack) }

// Release returns the deferral to the store, which delivers it again after the given time, and sets
// w.settled. It blocks and repeats that until the store has done it, the claim is lost or ctx ends.
// Returns the last error then, or [broker.ErrLeaseLost].
func (w *answer) Release(ctx context.Context, after time.Duration) error {
	return w.settleClaim(ctx, func(ctx context.Context) error { return w.claim.Release(ctx, after) })
}

// DeadLetter deletes the deferral, as Ack does. [broker.Delivery] needs this method. The broker no
// longer has the message; the settlement writes the dead letter itself, see [run.deadLetter].
func (w *answer) DeadLetter(ctx context.Context, _ broker.Dead) error { return w.Ack(ctx) }

// settleClaim calls settle until it succeeds, the claim of the deferral is lost, or ctx ends. It
// blocks meanwhile, logs the first error and returns the last one, or [broker.ErrLeaseLost]. After
// a success it sets w.settled and returns nil.
func (w *answer) settleClaim(ctx context.Context, settle func(context.Context) error) error {
	err := repeat(ctx, w.claim.Lost(), settle, func(err error) {
		w.c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "settling a deferral failed; it is repeated", slog.Any("error", err))
	})
	if err == nil {
		w.settled.Store(true)
	}
	return err
}

// releaseUnsettled returns the deferral to the store if it is neither settled nor lost. It tries
// once and waits up to giveBackTimeout. The store delivers it again after answerRetryDelay. An
// error is ignored: the lease of the deferral ends later.
func (w *answer) releaseUnsettled() {
	if w.settled.Load() || intake.Lost(w) {
		return
	}
	ctx, cancel := context.WithTimeout(w.c.settle, giveBackTimeout)
	defer cancel()
	// an error is ignored: the lease ends then
	_ = w.claim.Release(ctx, answerRetryDelay)
}

// replace publishes the task's next message, and then tells the store that this message replaces
// the deferral. It tries each once. A repeated call with the same generation does not publish
// again; w.published holds the generation.
//
// Returns errors of the broker and of the store. Returns nil also if the next attempt has already
// claimed the deferral ([broker.ErrLeaseLost]). After a success it sets w.settled.
func (w *answer) replace(ctx context.Context, out broker.Outgoing) error {
	if w.published != out.Message.Generation {
		if err := broker.PublishAt(ctx, w.c.cfg.Broker, out); err != nil {
			return err
		}
		w.published = out.Message.Generation
	}
	err := w.claim.Next(ctx, out.At)
	if errors.Is(err, broker.ErrLeaseLost) { // the next attempt has already begun
		err = nil
	}
	if err == nil {
		w.settled.Store(true)
	}
	return err
}

// answerRetryDelay is the time after which an unsettled deferral is delivered again.
const answerRetryDelay = 5 * time.Second

// settleAnswer settles the task of a received deferral, and blocks until that is done or given up.
//
//   - If answerVerdict knows how the attempt ended, it settles the task by the returned verdict.
//   - If the deferral was only woken, to check for a revocation, it returns the deferral to the
//     store until its deadline.
//   - If the attempt was abandoned, it deletes the deferral: the broker still has the message of
//     the task.
func (q *queue) settleAnswer(r *run) {
	switch end, known := r.answerVerdict(); {
	case known:
		q.settle(r, end)
	case r.answer.outcome.Kind == deferral.Woken:
		r.releaseUntilDeadline()
	default: // Abandoned: the task did not wait for this answer, and the broker still has its message
		r.discard()
	}
}

// answerVerdict returns how the task of a received deferral is settled. It reads the list of
// revocations, and for a redelivered deferral the result store. It changes neither, but may block
// until they answer. v is the first of these that applies:
//
//   - The verdict that an earlier delivery of the deferral has stored.
//   - Revoked, if the task is revoked.
//   - The success, retry or failure that the outcome of the deferral (r.answer) means: an answer is
//     a success, a refusal or timeout an error. An abandoned at-most-once task fails with
//     [task.ErrUncertain].
//
// If one of the reads fails, it logs that, and v is giveBack. If the task has begun a later life
// (its dead letter was requeued), answerVerdict sets r.stale: settle then drops the deferral,
// whatever v is.
//
// known is false if the task does not end now: the deferral was only woken, or it was abandoned and
// the broker still has the message of the task. v is then empty.
func (r *run) answerVerdict() (v verdict, known bool) {
	if r.answer.outcome.Again {
		if v, known = r.recordedVerdict(); known {
			return v, true
		}
	}
	switch is, err := r.isRevoked(); {
	case err != nil:
		r.log(slog.LevelWarn, "a deferral is released: its task's revocation cannot be read", slog.Any("error", err))
		return verdict{kind: giveBack}, true
	case is:
		return verdict{kind: revoked, err: task.ErrRevoked}, true
	}
	switch o := &r.answer.outcome; o.Kind {
	case deferral.Answered:
		return r.answerResult(o.Answer), true
	case deferral.Refused:
		return r.failureVerdict(task.Rejected(o.Refusal)), true
	case deferral.TimedOut:
		return r.failureVerdict(task.ErrAnswerTimeout), true
	case deferral.Abandoned:
		if r.answer.atMostOnce { // its consumer died, and no other consumer records the end of the task
			return verdict{kind: failed, err: task.ErrUncertain}, true
		}
	}
	return verdict{}, false
}

// recordedVerdict looks in the result store for the verdict that an earlier settlement of this
// deferral stored. It waits up to loadTimeout. known, the second result, is true if the caller must
// use the verdict or r.stale:
//
//   - A final record: its verdict, true.
//   - A record of a later life of the task: it sets r.stale; the verdict has no meaning, true.
//   - The store fails: giveBack, true. It logs that.
//   - No record, one that is malformed or not final, or no store that keeps records: false.
func (r *run) recordedVerdict() (verdict, bool) {
	store := r.store()
	if store == nil || resultstore.RepliesOnly(store) {
		return verdict{}, false
	}
	ctx, cancel := context.WithTimeout(r.queue.c.settle, loadTimeout)
	defer cancel()
	rec, err := r.load(ctx, store)
	switch {
	case err == nil && r.isSuperseded(&rec): // the answer belongs to an earlier life
		r.stale.Store(true)
		return verdict{}, true
	case err == nil && rec.State.Terminal():
		return verdictOfRecord(&rec), true
	case err == nil, errors.Is(err, resultstore.ErrNotFound), errors.Is(err, resultstore.ErrMalformed):
		return verdict{}, false
	}
	r.log(slog.LevelWarn, "a deferral is released: the result store failed", slog.Any("error", err))
	return verdict{kind: giveBack}, true
}

// isRevoked reports whether the task is revoked. It may wait for the list of revocations, at most
// until the settlements of the consumer end. Returns an error if that cannot be read now, and false
// without Config.Revocations.
func (r *run) isRevoked() (bool, error) {
	list := r.queue.c.cfg.Revocations
	if list == nil {
		return false, nil
	}
	return list.Check(r.queue.c.settle, r.queue.name, r.request.Envelope)
}

// failureVerdict returns the verdict of an attempt whose answer is a refusal or did not come, as
// for err from its handler: a retry, or the failure of the task.
func (r *run) failureVerdict(err error) verdict { return r.decided(r.request.Outcome(err)) }

// answerResult returns the verdict of a task whose answer is data, a JSON value. The task succeeds
// with data as its result. If the result is not kept and no task follows, the verdict has no
// result.
//
// If the consumer has no JSON serializer, it encodes the value with the serializer of the task. A
// result that cannot be encoded, or is larger than Tuning.MaxResult, fails the task with
// [task.ErrBadResult].
func (r *run) answerResult(data []byte) verdict {
	c := r.queue.c
	if r.store() == nil && len(r.request.Then) == 0 && r.request.Chord == nil {
		return verdict{kind: succeeded} // no reader needs the result
	}
	contentType := serializer.ContentJSON
	if !c.codec.Knows(contentType) {
		value, err := wire.ReadJSON(data)
		if err == nil {
			data, contentType, err = c.codec.Marshal(r.request.Effective.Serializer.Or(""), value)
		}
		if err != nil {
			return verdict{kind: failed, err: task.Remote(fmt.Errorf("%w: %w", task.ErrBadResult, err))}
		}
	}
	if len(data) > c.cfg.Tuning.MaxResult {
		return verdict{kind: failed, err: task.Remote(fmt.Errorf("%w: %d bytes, limit %d", task.ErrBadResult, len(data), c.cfg.Tuning.MaxResult))}
	}
	return verdict{kind: succeeded, result: data, contentType: contentType}
}

// releaseUntilDeadline returns a deferral without an answer to the store, and repeats that for up
// to giveBackTimeout. The store delivers it again at its Deadline by the clock of the store, since
// the clock of this process may be wrong. The last error is logged: the lease of the deferral then
// ends.
func (r *run) releaseUntilDeadline() {
	ctx, cancel := context.WithTimeout(r.queue.c.settle, giveBackTimeout)
	defer cancel()
	if err := r.delivery.Release(ctx, task.MaxTimeLimit); err != nil && !broker.Gone(err) {
		r.log(slog.LevelWarn, "a deferral was not released; its lease will expire", slog.Any("error", err))
	}
}
