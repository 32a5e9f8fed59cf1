package amqpevents

import (
	"context"
	"slices"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/ring"
)

// listener is a subscription to new events. It has its own queue on the exchange and a goroutine
// that decodes messages into a limited buffer.
type listener struct {
	stream
	buffer    *ring.Stream[events.Event]
	filter    events.Filter
	malformed atomic.Uint64
}

// Subscribe implements [events.EventBus]: it returns a stream of the new events that match f. It
// declares a queue and blocks until the listener consumes it. If ctx has already ended, it returns
// ctx's error unwrapped.
//
// Without a broker, or while the broker refuses the queue, it tries until ctx ends. A refusal of
// the credentials or a permission is returned at once. Both are [events.ErrUnavailable]. Returns
// ErrClosed after Close.
func (b *Bus) Subscribe(ctx context.Context, f events.Filter) (events.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.Types = slices.Clone(f.Types)
	l := &listener{buffer: ring.NewStream[events.Event](b.cfg.Buffer, events.ErrClosed), filter: f}
	l.ending = l.buffer.Close
	if err := l.start(ctx, b, b.exchange, l.run); err != nil {
		return nil, err
	}
	return l, nil
}

// run declares an exclusive queue on the exchange and reports to start that it consumes (l.open).
// It adds the queue's events to the buffer until the channel or ctx ends. The queue ends with the
// connection. Supervise calls it on the stream's goroutine, once for each channel. Returns nil if
// ctx has ended, otherwise the server's refusal or the error that ended the channel.
func (l *listener) run(ctx context.Context, ch *amqpconn.Channel) error {
	if err := l.bus.declareExchange(ch.Channel); err != nil {
		return err
	}
	q, err := ch.QueueDeclare("", false, true, true, false, amqp.Table{
		"x-max-length": int64(l.bus.cfg.QueueLength),
		"x-overflow":   "drop-head",
	})
	if err != nil {
		return err
	}
	if err := ch.QueueBind(q.Name, "", l.bus.exchange, false, nil); err != nil {
		return err
	}
	if err := ch.Qos(amqpconn.FeedPrefetch, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume(q.Name, "", false, true, false, false, nil)
	if err != nil {
		return err
	}
	l.open(nil)
	f := amqpconn.NewFeed(ch, deliveries)
	for {
		d, ok, err := f.Next(ctx)
		if err != nil || !ok {
			return err
		}
		l.onMessage(d.Body)
		if err := f.Taken(&d); err != nil {
			return err
		}
	}
}

// onMessage adds the matching events of a message to the buffer. It counts an invalid message as
// one dropped event. It does not block.
func (l *listener) onMessage(message []byte) {
	es, err := l.filter.Decode(message)
	if err != nil {
		l.malformed.Add(1)
		return
	}
	for i := range es {
		l.buffer.Put(&es[i])
	}
}

// Receive implements [events.Subscription]: it waits for the next event in the buffer and returns
// it, also if ctx has ended. Returns ctx's error when ctx ends and ErrClosed after Close of the
// subscription or the bus.
func (l *listener) Receive(ctx context.Context) (events.Event, error) { return l.buffer.Get(ctx) }

// Dropped implements [events.DropCounter]: it counts events that newer ones replaced in the buffer,
// and invalid messages. Messages that the broker dropped from the queue are not counted.
func (l *listener) Dropped() uint64 { return l.buffer.Dropped() + l.malformed.Load() }
