package amqpevents

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// contentType marks the messages of the exchange.
const contentType = "application/json"

// Bus publishes and listens over two connections, because a broker that blocks publishers still
// delivers. A third one is for kept events. It opens each connection at its first use. All methods
// are safe for concurrent use.
type Bus struct {
	cfg          Config
	exchange     string
	sending      *amqpconn.Conn
	receiving    *amqpconn.Conn
	publisher    *amqpconn.Publisher
	batcher      *events.Batcher
	log          *log          // nil: no event is kept
	positionWait time.Duration // the constant positionWait, except in tests
	closed       atomic.Bool   // written under mu
	tasks        sync.WaitGroup

	mu      sync.Mutex
	streams map[*stream]struct{}
}

// New checks c and makes a Bus. It does no I/O and starts no goroutine; the first event starts one
// goroutine and the publishing connection. It returns all problems of c in one error.
func New(c Config) (*Bus, error) {
	c, err := c.complete()
	open := func(role string) *amqpconn.Conn {
		conn, connErr := amqpconn.New(c.Connect, role, c.Logger)
		err = errors.Join(err, connErr)
		return conn
	}
	sending := open("events")
	if err != nil { // the second connection would have the same problems
		return nil, err
	}
	receiving := open("listener")
	if err != nil {
		return nil, err
	}
	var kept *log
	if c.Retain.On() {
		keeping := open("event log")
		if err != nil {
			return nil, err
		}
		kept = newLog(c, keeping)
	}
	c.Connect.URLs = nil // they hold passwords and are not needed any more
	b := &Bus{
		cfg:          c,
		exchange:     "swj." + c.Namespace + ".ev",
		sending:      sending,
		receiving:    receiving,
		log:          kept,
		positionWait: positionWait,
		streams:      make(map[*stream]struct{}),
	}
	b.publisher = amqpconn.NewPublisher(sending, amqpconn.PublisherConfig{Setup: b.declareExchange, Unconfirmed: true})
	b.batcher = events.NewBatcher(b.send, c.Batch)
	return b, nil
}

// declareExchange declares the durable fanout exchange on ch and waits for the server. Every
// publisher and listener calls it, so that their order does not matter. Returns the error of the
// server or the channel, for example if the exchange exists with other properties.
func (b *Bus) declareExchange(ch *amqp.Channel) error {
	return ch.ExchangeDeclare(b.exchange, amqp.ExchangeFanout, true, false, false, false, nil)
}

// send publishes one message; the batcher's goroutine calls it. It returns nil when the message is
// in the connection's limited buffer: there is no confirmation. Without a connection, or while the
// broker blocks publishers, it waits until ctx ends and returns an error.
func (b *Bus) send(ctx context.Context, message []byte, _ int) error {
	return b.publisher.Publish(ctx, b.exchange, "", &amqp.Publishing{
		ContentType:  contentType,
		DeliveryMode: amqp.Transient,
		Body:         message,
	})
}

// Publish implements [events.EventBus]: it calls PublishNow and ignores its context.
func (b *Bus) Publish(_ context.Context, e events.Event) error { return b.PublishNow(e) }

// PublishNow implements [events.PromptPublisher]: it queues e for the exchange and, if its type is
// kept, for the stream queue. A full queue drops its oldest event. PublishNow never blocks. Returns
// ErrClosed after Close.
func (b *Bus) PublishNow(e events.Event) error {
	if b.log != nil {
		b.log.add(e)
	}
	return b.batcher.Add(e)
}

// Dropped implements [events.DropCounter]. It counts events published on this bus that were dropped
// before they reached the connection: more than Batch.Capacity waited, the broker could not be
// reached or blocked publishers, or the event could not be encoded. [Bus.Unkept] counts kept events
// separately.
func (b *Bus) Dropped() uint64 { return b.batcher.Dropped() }

// Unkept returns the number of events published on this bus that are not kept although
// Config.Retain selects them. The reasons are those of [Bus.Dropped], or the broker did not confirm
// them.
func (b *Bus) Unkept() uint64 {
	if b.log == nil {
		return 0
	}
	return b.log.batcher.Dropped()
}

// Close implements [events.EventBus]. It sends the waiting events, ends the subscriptions, whose
// unread events are dropped, and closes the connections. After nil all events have reached the
// broker.
//
// If ctx ends first it drops the rest and returns ctx's error. An unreachable broker delays Close
// by up to Batch.SendTimeout. It takes b.mu, but not while it waits.
func (b *Bus) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed.Store(true)
	open := slices.Collect(maps.Keys(b.streams))
	b.mu.Unlock()
	kept := make(chan error, 1)
	go func() { // concurrently, because both may wait for the same broker
		if b.log == nil {
			kept <- nil
			return
		}
		kept <- b.log.close(ctx)
	}()
	errs := []error{b.batcher.Close(ctx), closeError(b.publisher.Close(ctx)), <-kept}
	for _, s := range open {
		errs = append(errs, s.Close(ctx))
	}
	errs = append(errs, closeError(b.sending.Close(ctx)), closeError(b.receiving.Close(ctx)))
	if b.log != nil {
		errs = append(errs, closeError(b.log.conn.Close(ctx)))
	}
	b.tasks.Wait() // no listener blocks on a closed connection
	return errors.Join(errs...)
}

// closeError wraps the error of closing the publisher or a connection with the port's error. It
// returns nil for nil.
func closeError(err error) error {
	if err == nil {
		return nil
	}
	return failure("close", err)
}

// failure wraps err, which must not be nil, with the matching error of the port and the name of
// the operation: ErrClosed if the bus is closed, otherwise ErrUnavailable.
func failure(what string, err error) error {
	class := events.ErrUnavailable
	// ErrUnavailable may have ErrClosed of one connection as its cause; that connection is replaced.
	if errors.Is(err, amqpconn.ErrClosed) && !errors.Is(err, amqpconn.ErrUnavailable) {
		class = events.ErrClosed
	}
	return fmt.Errorf("amqp %s: %w: %w", what, class, err)
}

var (
	_ events.EventBus        = (*Bus)(nil)
	_ events.DropCounter     = (*Bus)(nil)
	_ events.PromptPublisher = (*Bus)(nil)
	_ events.Retainer        = (*Bus)(nil)
	_ events.Subscription    = (*listener)(nil)
	_ events.DropCounter     = (*listener)(nil)
	_ events.Subscription    = (*replay)(nil)
	_ events.DropCounter     = (*replay)(nil)
)
