package answers

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer/internal/intake"
	"github.com/swarmiji/swarmiji/consumer/internal/steps"
	"github.com/swarmiji/swarmiji/deferral"
)

// RetryDelay is the time after which an unsettled deferral is delivered again.
const RetryDelay = 5 * time.Second

// Claim is a deferral that was received because its answer came, or did not come in time.
//
// It implements [broker.Delivery] for the settlement of the task. Its methods settle the deferral
// in the store of deferrals, since the broker no longer has the message.
type Claim struct {
	Deferral deferral.Delivery
	Outcome  deferral.Outcome
	Broker   broker.Broker
	Logger   *slog.Logger

	// The stored task, set by Read.
	Stored     *broker.Message
	Delivered  int // how often the broker had delivered the message
	AtMostOnce bool
	Runtime    time.Duration // how long the handler ran
	// The answer is stored under this name and the task runs again; "": the answer is the result.
	Checkpoint string

	published int         // generation of the published retry; 0: no retry was published
	settled   atomic.Bool // the deferral is settled
}

var _ broker.Delivery = (*Claim)(nil)

// Read reads the state of the deferral, and sets the fields of w that describe the stored task. Its
// errors are those of the function Read.
func (w *Claim) Read() (*Kept, error) {
	kept, err := Read(w.Deferral.Attempt().State)
	if err != nil {
		return nil, err
	}
	w.Stored, w.Delivered, w.AtMostOnce = kept.Message.Message, kept.Deliveries, kept.AtMostOnce
	if kept.Resumed != nil {
		w.Checkpoint = kept.Resumed.Checkpoint
		// its handler has not returned, and must not start a second time
		if kept.AtMostOnce && kept.Ended == 0 && w.Outcome.Kind != deferral.Woken {
			w.Outcome.Kind = deferral.Abandoned
		}
	}
	if kept.Ended != 0 {
		w.Runtime = max(time.UnixMilli(kept.Ended).Sub(time.UnixMilli(kept.Started)), 0)
	}
	return kept, nil
}

// Message returns the message of the task that the deferral stores.
func (w *Claim) Message() *broker.Message { return w.Stored }

// Deliveries returns how often the broker had delivered the message when the task was deferred.
func (w *Claim) Deliveries() (n int, exact bool) { return w.Delivered, true }

// Lost returns a channel that is closed when the claim of the deferral is lost.
func (w *Claim) Lost() <-chan struct{} { return w.Deferral.Lost() }

// Ack deletes the deferral. It blocks and repeats that until the store has done it, the claim is
// lost or ctx ends. Returns nil after a success, [broker.ErrLeaseLost] for a lost claim, and the
// last error if ctx ends.
func (w *Claim) Ack(ctx context.Context) error { return w.settle(ctx, w.Deferral.Ack) }

// Release returns the deferral to the store, which delivers it again after the given time. It
// blocks, repeats and returns errors as Ack does.
func (w *Claim) Release(ctx context.Context, after time.Duration) error {
	return w.settle(ctx, func(ctx context.Context) error { return w.Deferral.Release(ctx, after) })
}

// DeadLetter deletes the deferral, as Ack does. [broker.Delivery] needs this method. The broker no
// longer has the message; the settlement writes the dead letter itself.
func (w *Claim) DeadLetter(ctx context.Context, _ broker.Dead) error { return w.Ack(ctx) }

// settle calls do until it succeeds, the claim of the deferral is lost, or ctx ends. It blocks
// meanwhile, logs the first error and returns the last one, or [broker.ErrLeaseLost]. After a
// success it sets w.settled and returns nil.
func (w *Claim) settle(ctx context.Context, do func(context.Context) error) error {
	err := steps.Repeat(ctx, w.Deferral.Lost(), do, func(err error) {
		w.Logger.LogAttrs(ctx, slog.LevelWarn, "settling a deferral failed; it is repeated", slog.Any("error", err))
	})
	if err == nil {
		w.settled.Store(true)
	}
	return err
}

// ReleaseUnsettled returns the deferral to the store if it is neither settled nor lost. It tries
// once and waits up to closeTimeout. The store delivers it again after RetryDelay. An error is
// ignored: the lease of the deferral ends later.
func (w *Claim) ReleaseUnsettled(ctx context.Context) {
	if w.settled.Load() || intake.Lost(w) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	// an error is ignored: the lease ends then
	_ = w.Deferral.Release(ctx, RetryDelay)
}

// Replace publishes the task's next message, and then tells the store that this message replaces
// the deferral. After an answer that is stored as a checkpoint, it deletes the deferral: the next
// attempt expects no answer to that key. It tries each once. A repeated call with the same
// generation does not publish again.
//
// Returns errors of the broker and of the store. Returns nil also if the next attempt has already
// claimed the deferral ([broker.ErrLeaseLost]).
func (w *Claim) Replace(ctx context.Context, out broker.Outgoing) error {
	if w.published != out.Message.Generation {
		if err := broker.PublishAt(ctx, w.Broker, out); err != nil {
			return err
		}
		w.published = out.Message.Generation
	}
	var err error
	if w.Checkpoint != "" {
		err = w.Deferral.Ack(ctx)
	} else {
		err = w.Deferral.Next(ctx, out.At)
	}
	if errors.Is(err, broker.ErrLeaseLost) { // the next attempt has already begun
		err = nil
	}
	if err == nil {
		w.settled.Store(true)
	}
	return err
}
