package amqpevents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/ring"
)

// prefetch is how many messages the broker sends ahead of the decoding. A bound keeps those of a slow process in the
// queue, which is bounded itself, and out of its memory.
const prefetch = 64

// listener is one subscription: a queue of its own on the exchange, and a goroutine that decodes into a bounded buffer.
type listener struct {
	*ring.Stream[events.Event]
	bus       *Bus
	filter    events.Filter
	malformed atomic.Uint64
	stop      context.CancelFunc
	ctx       context.Context
	ended     chan struct{} // closed when the goroutine has returned

	openOnce sync.Once
	opened   chan struct{} // closed when the queue is consumed for the first time, or openErr is set
	openErr  error
}

// Subscribe implements [events.EventBus]. Without a broker it waits until ctx ends; a refusal of the credentials is
// returned at once. Both are [events.ErrUnavailable].
func (b *Bus) Subscribe(ctx context.Context, f events.Filter) (events.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.Types = slices.Clone(f.Types)
	l := &listener{
		Stream: ring.NewStream[events.Event](b.cfg.Buffer, events.ErrClosed),
		bus:    b, filter: f,
		ended: make(chan struct{}), opened: make(chan struct{}),
	}
	l.ctx, l.stop = context.WithCancel(context.Background())
	b.mu.Lock()
	if b.closed.Load() {
		b.mu.Unlock()
		l.stop()
		return nil, events.ErrClosed
	}
	b.listeners[l] = struct{}{}
	b.tasks.Add(1)
	b.mu.Unlock()
	go func() {
		defer b.tasks.Done()
		defer close(l.ended)
		b.receiving.Supervise(l.ctx, l.run, l.report)
		l.open(amqpconn.ErrClosed) // nobody may wait for it any more
	}()
	var err error
	select {
	case <-l.opened:
		err = l.openErr
	case <-ctx.Done():
		if _, err = b.receiving.Session(ctx); err == nil { // which says why there is none, as far as anybody knows
			err = fmt.Errorf("%w: %w", amqpconn.ErrUnavailable, ctx.Err())
		}
	}
	if err != nil {
		l.end() // the goroutine ends when the broker has answered, or with the connection
		return nil, failure("listener", err)
	}
	return l, nil
}

// open tells Subscribe that the stream is open, or why it cannot be. Only the first call counts.
func (l *listener) open(err error) {
	l.openOnce.Do(func() {
		l.openErr = err
		close(l.opened)
	})
}

// report is told why a run ended.
func (l *listener) report(err error) {
	select {
	case <-l.opened:
		l.bus.cfg.Logger.LogAttrs(l.ctx, slog.LevelWarn, "event listener interrupted, trying again",
			slog.String("exchange", l.bus.exchange), slog.Any("error", err))
	default:
		if errors.Is(err, amqpconn.ErrAccess) { // waiting does not mend it
			l.open(err)
		}
	}
}

var errCancelled = errors.New("amqp: the queue was deleted, or its node has gone")

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
	if err := ch.Qos(prefetch, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume(q.Name, "", false, true, false, false, nil)
	if err != nil {
		return err
	}
	l.open(nil)
	var last uint64 // tag of the last message taken
	unacked := 0
	for {
		d, ok, err := l.next(ctx, ch, deliveries, last, &unacked)
		if err != nil || !ok {
			return err
		}
		l.take(d.Body)
		last = d.DeliveryTag
		// The window of the prefetch has to move along in a stream without lulls; half a window at a time will do.
		if unacked++; unacked >= prefetch/2 {
			if err := l.acknowledge(ch, last, &unacked); err != nil {
				return err
			}
		}
	}
}

// next returns the next message. When none is there it acknowledges what was taken, since the server ends a channel that
// leaves a message unacknowledged for consumer_timeout, and waits; ok is false at the end of ctx.
func (l *listener) next(ctx context.Context, ch *amqpconn.Channel, deliveries <-chan amqp.Delivery, last uint64, unacked *int) (d amqp.Delivery, ok bool, err error) {
	if *unacked > 0 {
		runtime.Gosched() // the library hands over from a buffer of its own: let it, before this is taken for a lull
	}
	select {
	case d, ok = <-deliveries:
	case <-ctx.Done(): // a busy bus knows no lull
		return d, false, nil
	default:
		if err := l.acknowledge(ch, last, unacked); err != nil {
			return d, false, err
		}
		select {
		case d, ok = <-deliveries:
		case <-ctx.Done():
			return d, false, nil
		}
	}
	if !ok {
		return d, false, l.cause(ch)
	}
	return d, true, nil
}

// acknowledge settles all messages up to last.
func (l *listener) acknowledge(ch *amqpconn.Channel, last uint64, unacked *int) error {
	if *unacked == 0 {
		return nil
	}
	*unacked = 0
	if err := ch.Ack(last, true); err != nil { // it only writes, so the channel has ended
		return l.cause(ch)
	}
	return nil
}

// cause says why the deliveries ended. The library ends them a moment before the channel, or without it when the server
// cancels the consumer.
func (l *listener) cause(ch *amqpconn.Channel) error {
	if ch.IsClosed() {
		<-ch.Done()
		return ch.Err()
	}
	return errCancelled
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
			l.Put(es[i])
		}
	}
}

// Receive implements [events.Subscription].
func (l *listener) Receive(ctx context.Context) (events.Event, error) { return l.Get(ctx) }

// Dropped implements [events.DropCounter]: events that gave way to newer ones in this process's buffer, and messages that
// hold no events. What the broker dropped from the queue is not known.
func (l *listener) Dropped() uint64 { return l.Stream.Dropped() + l.malformed.Load() }

// Close implements [events.Subscription]. When ctx ends first the queue may live until the connection ends.
func (l *listener) Close(ctx context.Context) error {
	l.end()
	select {
	case <-l.ended:
		return nil
	default:
	}
	select {
	case <-l.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("amqp listener: closing: %w", ctx.Err())
	}
}

// end stops the stream without waiting.
func (l *listener) end() {
	l.stop()
	l.Stream.Close()
	l.bus.mu.Lock()
	delete(l.bus.listeners, l)
	l.bus.mu.Unlock()
}
