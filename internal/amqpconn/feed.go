package amqpconn

import (
	"context"
	"errors"
	"runtime"

	amqp "github.com/rabbitmq/amqp091-go"
)

// FeedPrefetch is the prefetch of a consumer that uses a [Feed]. The limit keeps the messages for a
// slow process in the queue, which is limited itself, and out of the process's memory.
const FeedPrefetch = 64

var errFeedCancelled = errors.New("amqp: the queue was deleted, or its node is down")

// Feed reads the deliveries of one consumer, the only one on its channel, and acknowledges them.
// Use it from one goroutine only.
type Feed struct {
	ch         *Channel
	deliveries <-chan amqp.Delivery
	last       uint64 // tag of the last message passed to Taken
	unacked    int
}

// NewFeed returns a Feed for a consumer with [FeedPrefetch].
func NewFeed(ch *Channel, deliveries <-chan amqp.Delivery) *Feed {
	return &Feed{ch: ch, deliveries: deliveries}
}

// Next waits for the next message and returns it. If none is ready it first acknowledges the
// messages passed to Taken, because the server closes a channel with a message unacknowledged for
// consumer_timeout. When ctx ends, ok is false and err is nil. Returns the reason when the channel
// or the consumer ends.
func (f *Feed) Next(ctx context.Context) (d amqp.Delivery, ok bool, err error) {
	if f.unacked > 0 {
		runtime.Gosched() // the library delivers from its own buffer: give it a chance to do so
	}
	select {
	case d, ok = <-f.deliveries:
	case <-ctx.Done(): // needed on a busy bus, where a message is always ready
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

// Taken records that d was processed; call it in the order of Next. It acknowledges all messages so
// far after every half prefetch window, so that a continuous stream of messages does not stop. It
// does not block. Returns the reason if the channel has ended.
func (f *Feed) Taken(d *amqp.Delivery) error {
	f.last = d.DeliveryTag
	if f.unacked++; f.unacked >= FeedPrefetch/2 {
		return f.acknowledge()
	}
	return nil
}

// acknowledge acknowledges all messages up to f.last, if any was not acknowledged yet. It returns
// an error only if the channel has ended.
func (f *Feed) acknowledge() error {
	if f.unacked == 0 {
		return nil
	}
	f.unacked = 0
	// Ack only writes, so an error means that the channel has ended
	if err := f.ch.Ack(f.last, true); err != nil {
		return f.cause()
	}
	return nil
}

// cause returns the reason why the deliveries ended. The library ends them shortly before the
// channel, so cause waits for the end of the channel. If the server cancels the consumer, the
// channel stays open, and cause returns errFeedCancelled at once.
func (f *Feed) cause() error {
	if f.ch.IsClosed() {
		<-f.ch.Done()
		return f.ch.Err()
	}
	return errFeedCancelled
}
