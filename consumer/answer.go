package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// answer is a deferral whose answer has come, or has not come in time. To the settlement it is the delivery of its task: what a broker does with a message, the
// store of deferrals does with this one.
type answer struct {
	c          *Consumer
	claim      deferral.Delivery
	outcome    deferral.Outcome
	message    *broker.Message
	deliveries int
	atMostOnce bool
	ran        time.Duration // the handler
	published  int           // the generation of the retry that was published; 0: none
	settled    atomic.Bool
}

var _ broker.Delivery = (*answer)(nil)

// Message implements [broker.Delivery].
func (w *answer) Message() *broker.Message { return w.message }

// Deliveries implements [broker.Delivery].
func (w *answer) Deliveries() (n int, exact bool) { return w.deliveries, true }

// Lost implements [broker.Delivery].
func (w *answer) Lost() <-chan struct{} { return w.claim.Lost() }

// Ack implements [broker.Delivery]: the deferral is over.
func (w *answer) Ack(ctx context.Context) error { return w.let(ctx, w.claim.Ack) }

// Release implements [broker.Delivery].
func (w *answer) Release(ctx context.Context, after time.Duration) error {
	return w.let(ctx, func(ctx context.Context) error { return w.claim.Release(ctx, after) })
}

// Bury implements [broker.Delivery]. The message is gone from its broker, so that only the record tells of it.
func (w *answer) Bury(ctx context.Context, _ broker.Dead) error { return w.Ack(ctx) }

// let settles the deferral, and repeats that until the store has done it.
func (w *answer) let(ctx context.Context, settle func(context.Context) error) error {
	err := repeat(ctx, w.claim.Lost(), settle, func(err error) {
		w.c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "ending a deferral is repeated", slog.Any("error", err))
	})
	if err == nil {
		w.settled.Store(true)
	}
	return err
}

// giveUp gives a deferral back that could not be settled.
func (w *answer) giveUp() {
	if w.settled.Load() || isLost(w) {
		return
	}
	ctx, cancel := context.WithTimeout(w.c.settle, giveBackTimeout)
	defer cancel()
	_ = w.claim.Release(ctx, answerAgain) // else its lease ends
}

// replace publishes the task's next message, once, and leaves the deferral to that one.
func (w *answer) replace(ctx context.Context, out broker.Outgoing) error {
	if w.published != out.Message.Generation {
		if err := broker.PublishAt(ctx, w.c.cfg.Broker, out); err != nil {
			return err
		}
		w.published = out.Message.Generation
	}
	err := w.claim.Next(ctx, out.At)
	if errors.Is(err, broker.ErrLeaseLost) { // the next attempt was quicker
		err = nil
	}
	if err == nil {
		w.settled.Store(true)
	}
	return err
}

// answerAgain is after how long a deferral is looked at again that could not be settled.
const answerAgain = 5 * time.Second

// settleAnswer settles a run by what came of its answer.
func (q *queue) settleAnswer(r *run) {
	switch end, known := r.endOf(); {
	case known:
		q.settle(r, end)
	case r.answer.outcome.Kind == deferral.Woken:
		r.awaitAgain()
	default: // what it expected it did not wait for; its message is the broker's
		r.discard()
	}
}

// endOf returns what becomes of the task, if that is known.
func (r *run) endOf() (v verdict, known bool) {
	if r.answer.outcome.Again {
		if v, known = r.settledBefore(); known {
			return v, true
		}
	}
	switch is, err := r.revokedMeanwhile(); {
	case err != nil:
		r.log(slog.LevelWarn, "an answer is put back", slog.Any("error", err))
		return verdict{kind: giveBack}, true
	case is:
		return verdict{kind: revoked, err: task.ErrRevoked}, true
	}
	switch o := &r.answer.outcome; o.Kind {
	case deferral.Answered:
		return r.answered(o.Answer), true
	case deferral.Refused:
		return r.failure(task.Rejected(o.Refusal)), true
	case deferral.TimedOut:
		return r.failure(task.ErrAnswerTimeout), true
	case deferral.Abandoned:
		if r.answer.atMostOnce { // its consumer has died, and nobody else will say so
			return verdict{kind: failed, err: task.ErrUncertain}, true
		}
	}
	return verdict{}, false
}

// settledBefore looks for the end of the task that an earlier try has recorded.
func (r *run) settledBefore() (verdict, bool) {
	store := r.store()
	if store == nil || resultstore.RepliesOnly(store) {
		return verdict{}, false
	}
	ctx, cancel := context.WithTimeout(r.queue.c.settle, loadTimeout)
	defer cancel()
	rec, err := r.load(ctx, store)
	switch {
	case err == nil && r.outlived(&rec): // the answer is that of an earlier life
		r.stale.Store(true)
		return verdict{}, true
	case err == nil && rec.State.Terminal():
		return recorded(&rec), true
	case err == nil, errors.Is(err, resultstore.ErrNotFound), errors.Is(err, resultstore.ErrMalformed):
		return verdict{}, false
	}
	r.log(slog.LevelWarn, "an answer is put back, since the result store is away", slog.Any("error", err))
	return verdict{kind: giveBack}, true
}

// revokedMeanwhile reports whether the task was revoked.
func (r *run) revokedMeanwhile() (bool, error) {
	list := r.queue.c.cfg.Revocations
	if list == nil {
		return false, nil
	}
	return list.Check(r.queue.c.settle, r.queue.name, r.request.Envelope)
}

// failure is what the attempt comes to when no answer came, or a refusal.
func (r *run) failure(err error) verdict { return r.decided(r.request.Outcome(err)) }

// answered is the success of a task whose result came from outside, as JSON. It is handed on as it is, but where JSON is not among the serializers.
func (r *run) answered(data []byte) verdict {
	c := r.queue.c
	if r.store() == nil && len(r.request.Then) == 0 && r.request.Chord == nil {
		return verdict{kind: succeeded} // nobody will read it
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

// awaitAgain gives a deferral back that awaits its answer still. The store hands it out at its
// Deadline, by the store's clock: this process's may be wrong.
func (r *run) awaitAgain() {
	ctx, cancel := context.WithTimeout(r.queue.c.settle, giveBackTimeout)
	defer cancel()
	if err := r.delivery.Release(ctx, task.MaxTimeLimit); err != nil && !broker.Gone(err) {
		r.log(slog.LevelWarn, "a deferral is not given back; its lease will end", slog.Any("error", err))
	}
}
