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

// listener is a subscription to what comes from now on: a queue of its own on the exchange, and a goroutine that decodes
// into a bounded buffer.
type listener struct {
	stream
	buffer    *ring.Stream[events.Event]
	filter    events.Filter
	malformed atomic.Uint64
}

// Subscribe implements [events.EventBus]. Without a broker it waits until ctx ends; a refusal of the credentials is
// returned at once. Both are [events.ErrUnavailable].
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

// run listens over one channel until that ends. The queue ends with the connection.
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
		l.take(d.Body)
		if err := f.Taken(&d); err != nil {
			return err
		}
	}
}

// take hands on the events of a message that the subscriber wants. A message that is none counts as one dropped event.
func (l *listener) take(message []byte) {
	es, err := events.Decode(message)
	if err != nil {
		l.malformed.Add(1)
		return
	}
	for i := range es {
		if l.filter.Match(&es[i]) {
			l.buffer.Put(&es[i])
		}
	}
}

// Receive implements [events.Subscription].
func (l *listener) Receive(ctx context.Context) (events.Event, error) { return l.buffer.Get(ctx) }

// Dropped implements [events.DropCounter]: events that gave way to newer ones in this process's buffer, and messages that
// hold no events. What the broker dropped from the queue is not known.
func (l *listener) Dropped() uint64 { return l.buffer.Dropped() + l.malformed.Load() }
