package amqpconn

import (
	"context"
	"errors"
	"runtime"

	amqp "github.com/rabbitmq/amqp091-go"
)

// FeedPrefetch is the prefetch of a consumer whose messages go through a [Feed]. A bound keeps those of a slow process in the
// queue, which is bounded itself, and out of its memory.
const FeedPrefetch = 64

var errFeedCancelled = errors.New("amqp: the queue was deleted, or its node has gone")

// Feed is the deliveries of one consumer, the only one on its channel, and what of them is not acknowledged. It belongs to
// one goroutine.
type Feed struct {
	ch         *Channel
	deliveries <-chan amqp.Delivery
	last       uint64 // tag of the last message taken
	unacked    int
}

// NewFeed returns a Feed of a consumer with [FeedPrefetch].
func NewFeed(ch *Channel, deliveries <-chan amqp.Delivery) *Feed {
	return &Feed{ch: ch, deliveries: deliveries}
}

// Next returns the next message. When none is there it acknowledges what was taken, since the server ends a channel that
// leaves a message unacknowledged for consumer_timeout, and waits; ok is false at the end of ctx.
func (f *Feed) Next(ctx context.Context) (d amqp.Delivery, ok bool, err error) {
	if f.unacked > 0 {
		runtime.Gosched() // the library hands over from a buffer of its own: let it, before this is taken for a lull
	}
	select {
	case d, ok = <-f.deliveries:
	case <-ctx.Done(): // a busy bus knows no lull
		return d, false, nil
	default:
		if err := f.acknowledge(); err != nil {
			return d, false, err
		}
		select {
		case d, ok = <-f.deliveries:
		case <-ctx.Done():
			return d, false, nil
		}
	}
	if !ok {
		return d, false, f.cause()
	}
	return d, true, nil
}

// Taken notes that a message is done with. The window of the prefetch has to move along in a stream without lulls; half a
// window at a time will do.
func (f *Feed) Taken(d *amqp.Delivery) error {
	f.last = d.DeliveryTag
	if f.unacked++; f.unacked >= FeedPrefetch/2 {
		return f.acknowledge()
	}
	return nil
}

// acknowledge settles all messages up to the last.
func (f *Feed) acknowledge() error {
	if f.unacked == 0 {
		return nil
	}
	f.unacked = 0
	if err := f.ch.Ack(f.last, true); err != nil { // it only writes, so the channel has ended
		return f.cause()
	}
	return nil
}

// cause says why the deliveries ended. The library ends them a moment before the channel, or without it when the server
// cancels the consumer.
func (f *Feed) cause() error {
	if f.ch.IsClosed() {
		<-f.ch.Done()
		return f.ch.Err()
	}
	return errFeedCancelled
}
