package celery

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/celery/wire"
	"github.com/swarmiji/swarmiji/task"
)

// chordSizes stores the number of members of a chord.
type chordSizes interface {
	SetChordSize(ctx context.Context, group task.ID, size int) error
}

// chordBroker stores the size of a chord before it publishes its members. A member that ended first
// would find no size, and then no worker would send the body.
type chordBroker struct {
	broker.Broker
	sizes chordSizes
}

// Unwrap returns the broker, for its other capabilities.
func (b *chordBroker) Unwrap() any { return b.Broker }

// Publish implements [broker.Broker].
func (b *chordBroker) Publish(ctx context.Context, queue string, m *broker.Message) error {
	if err := b.prepare(ctx, []broker.Outgoing{{Message: m}}); err != nil {
		return err
	}
	return b.Broker.Publish(ctx, queue, m)
}

// PublishAt implements [broker.Delayer].
func (b *chordBroker) PublishAt(ctx context.Context, queue string, m *broker.Message, at time.Time) error {
	if err := b.prepare(ctx, []broker.Outgoing{{Message: m}}); err != nil {
		return err
	}
	return broker.PublishAt(ctx, b.Broker, broker.Outgoing{Queue: queue, Message: m, At: at})
}

// PublishBatch implements [broker.BatchPublisher].
func (b *chordBroker) PublishBatch(ctx context.Context, ms []broker.Outgoing) error {
	if err := b.prepare(ctx, ms); err != nil {
		return err
	}
	return broker.PublishBatch(ctx, b.Broker, ms)
}

// prepare stores the sizes of the chords of ms, once for each chord. Returns
// [broker.ErrUnavailable] if the store fails: nothing was published.
func (b *chordBroker) prepare(ctx context.Context, ms []broker.Outgoing) error {
	var stored map[task.ID]bool
	for _, m := range ms {
		for group, size := range wire.ChordSizes(m.Message) {
			if stored[group] {
				continue
			}
			if err := b.sizes.SetChordSize(ctx, group, size); err != nil {
				return errors.Join(broker.ErrUnavailable, err)
			}
			if stored == nil {
				stored = map[task.ID]bool{}
			}
			stored[group] = true
		}
	}
	return nil
}
