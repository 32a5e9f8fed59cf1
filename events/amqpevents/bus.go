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

// Bus publishes and listens over two connections, so that a broker that takes no messages just now still delivers; each is
// opened when it is first used. A third one is for what is kept. All methods may be called from any goroutine.
type Bus struct {
	cfg       Config
	exchange  string
	sending   *amqpconn.Conn
	receiving *amqpconn.Conn
	publisher *amqpconn.Publisher
	batcher   *events.Batcher
	log       *log          // nil: nothing is kept
	placeWait time.Duration // placeWait, but in tests
	closed    atomic.Bool   // written under mu
	tasks     sync.WaitGroup

	mu      sync.Mutex
	streams map[*stream]struct{}
}

// New checks c and makes a Bus. It does no I/O and starts nothing; the first event starts one goroutine and the connection
// to publish on. All problems of c are reported together.
func New(c Config) (*Bus, error) {
	c, err := c.complete()
	open := func(role string) *amqpconn.Conn {
		conn, connErr := amqpconn.New(c.Connect, role, c.Logger)
		err = errors.Join(err, connErr)
		return conn
	}
	sending := open("events")
	if err != nil { // the second would have the same problems
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
		cfg:       c,
		exchange:  "swj." + c.Namespace + ".ev",
		sending:   sending,
		receiving: receiving,
		log:       kept,
		placeWait: placeWait,
		streams:   make(map[*stream]struct{}),
	}
	b.publisher = amqpconn.NewPublisher(sending, amqpconn.PublisherConfig{Setup: b.declareExchange, Unconfirmed: true})
	b.batcher = events.NewBatcher(b.send, c.Batch)
	return b, nil
}

// declareExchange makes the exchange; every publisher and listener does, so that none has to come first.
func (b *Bus) declareExchange(ch *amqp.Channel) error {
	return ch.ExchangeDeclare(b.exchange, amqp.ExchangeFanout, true, false, false, false, nil)
}

// send publishes one message. It returns when the message is in the connection's buffer, which is bounded.
func (b *Bus) send(ctx context.Context, message []byte, _ int) error {
	return b.publisher.Publish(ctx, b.exchange, "", &amqp.Publishing{
		ContentType:  contentType,
		DeliveryMode: amqp.Transient,
		Body:         message,
	})
}

// Publish implements [events.EventBus].
func (b *Bus) Publish(_ context.Context, e events.Event) error { return b.PublishNow(e) }

// PublishNow implements [events.PromptPublisher].
func (b *Bus) PublishNow(e events.Event) error {
	if b.log != nil {
		b.log.add(e)
	}
	return b.batcher.Add(e)
}

// Dropped implements [events.DropCounter]: the events published here that were given up before they reached the
// connection, because more waited than Batch.Capacity, the broker could not be reached or took no messages, or the event
// cannot be written. Whether they are kept is counted by [Bus.Unkept].
func (b *Bus) Dropped() uint64 { return b.batcher.Dropped() }

// Unkept is how many of the events published here are not kept although Config.Retain asks for it, for the reasons of
// [Bus.Dropped] or since the broker did not confirm that it has them.
func (b *Bus) Unkept() uint64 {
	if b.log == nil {
		return 0
	}
	return b.log.batcher.Dropped()
}

// Close implements [events.EventBus]: it sends what waits, so that it has reached the broker when Close returns nil, ends
// the subscriptions and closes the connections. When ctx ends first, what is left is dropped and the error is ctx's. A
// broker that cannot be reached costs up to Batch.SendTimeout.
func (b *Bus) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed.Store(true)
	open := slices.Collect(maps.Keys(b.streams))
	b.mu.Unlock()
	kept := make(chan error, 1)
	go func() { // beside the other, as both may wait for the same broker
		if b.log == nil {
			kept <- nil
			return
		}
		kept <- b.log.close(ctx)
	}()
	errs := []error{b.batcher.Close(ctx), closing(b.publisher.Close(ctx)), <-kept}
	for _, s := range open {
		errs = append(errs, s.Close(ctx))
	}
	errs = append(errs, closing(b.sending.Close(ctx)), closing(b.receiving.Close(ctx)))
	if b.log != nil {
		errs = append(errs, closing(b.log.conn.Close(ctx)))
	}
	b.tasks.Wait() // nothing holds a listener up once its connection is closed
	return errors.Join(errs...)
}

// closing classes the error of closing a part: its connection may end at the same moment.
func closing(err error) error {
	if err == nil {
		return nil
	}
	return failure("close", err)
}

// failure puts the port's class beside a connection's error.
func failure(what string, err error) error {
	class := events.ErrUnavailable
	// A connection that was closed may be the reason of ErrUnavailable, and is not for good then.
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
