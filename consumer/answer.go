package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// answer is a deferral whose answer has come, or has not come in time. To the settlement it is the delivery of its task: what a broker does with a message, the
// jobs do with the deferral.
type answer struct {
	a          *answers
	claim      jobs.ClaimedDeferral
	lost       chan struct{} // closed when somebody else has it
	message    *broker.Message
	deliveries int
	atMostOnce bool
	ran        time.Duration // the handler
	published  int           // the generation of the retry that was published; 0: none
}

var _ broker.Delivery = (*answer)(nil)

// Message implements [broker.Delivery].
func (w *answer) Message() *broker.Message { return w.message }

// Deliveries implements [broker.Delivery].
func (w *answer) Deliveries() (n int, exact bool) { return w.deliveries, true }

// Lost implements [broker.Delivery].
func (w *answer) Lost() <-chan struct{} { return w.lost }

// Ack implements [broker.Delivery]: the deferral is over.
func (w *answer) Ack(ctx context.Context) error {
	return w.let(ctx, func(ctx context.Context) error { return w.a.deferrals.End(ctx, &w.claim) })
}

// Release implements [broker.Delivery].
func (w *answer) Release(ctx context.Context, after time.Duration) error {
	return w.let(ctx, func(ctx context.Context) error { return w.a.deferrals.Back(ctx, &w.claim, after) })
}

// Bury implements [broker.Delivery]. The message is gone from its broker, so that only the record tells of it.
func (w *answer) Bury(ctx context.Context, _ broker.Dead) error { return w.Ack(ctx) }

// let repeats what is done with the deferral until the jobs have done it, and says that it is somebody else's as brokers do.
func (w *answer) let(ctx context.Context, do func(context.Context) error) error {
	return repeat(ctx, w.lost, func(ctx context.Context) error {
		err := do(ctx)
		if errors.Is(err, jobs.ErrStale) {
			return fmt.Errorf("%w: %w", broker.ErrLeaseLost, err)
		}
		return err
	}, func(err error) {
		w.a.c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "ending a deferral is repeated", slog.Any("error", err))
	})
}

// replace publishes the task's next message, once, and leaves the deferral to that one.
func (w *answer) replace(ctx context.Context, out broker.Outgoing) error {
	if w.published != out.Message.Generation {
		if err := broker.PublishAt(ctx, w.a.c.cfg.Broker, out); err != nil {
			return err
		}
		w.published = out.Message.Generation
	}
	err := w.a.deferrals.Next(ctx, &w.claim, out.At)
	if errors.Is(err, jobs.ErrStale) { // the next attempt was quicker
		return nil
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
	case r.answer.claim.Kind == jobs.DeferralRoused:
		r.backUntil(time.Until(r.answer.claim.Deadline))
	default: // what it expected it did not wait for; its message is the broker's
		r.discard()
	}
}

// endOf returns what becomes of the task, if that is known.
func (r *run) endOf() (v verdict, known bool) {
	if r.answer.claim.Again {
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
	claim := &r.answer.claim
	switch claim.Kind {
	case jobs.DeferralAnswered:
		return r.answered(claim.Answer), true
	case jobs.DeferralRefused:
		return r.failure(task.Rejected(claim.Refusal)), true
	case jobs.DeferralTimedOut:
		return r.failure(task.ErrAnswerTimeout), true
	case jobs.DeferralLost:
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
	if len(data) > c.cfg.MaxResult {
		return verdict{kind: failed, err: task.Remote(fmt.Errorf("%w: %d bytes, limit %d", task.ErrBadResult, len(data), c.cfg.MaxResult))}
	}
	return verdict{kind: succeeded, result: data, contentType: contentType}
}

// backUntil gives a deferral back that there is nothing to do with yet.
func (r *run) backUntil(after time.Duration) {
	ctx, cancel := context.WithTimeout(r.queue.c.settle, giveBackTimeout)
	defer cancel()
	if err := r.delivery.Release(ctx, max(after, 0)); err != nil && !broker.Gone(err) {
		r.log(slog.LevelWarn, "a deferral is not given back; its lease will end", slog.Any("error", err))
	}
}
