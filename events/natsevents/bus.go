package natsevents

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// Bus publishes and listens over one connection, opened when it is first used. All methods may be called from any goroutine.
type Bus struct {
	cfg     Config
	names   names
	conn    *natsconn.Conn
	batcher *events.Batcher
	keeper  *keeper       // nil: nothing is kept
	dropped atomic.Uint64 // events that are too large for the server

	mu      sync.Mutex
	closed  bool
	streams map[stream]struct{}
	tasks   sync.WaitGroup // of spawn
}

// stream is a subscription of either kind.
type stream interface {
	end()
}

// New checks c and makes a Bus. It does no I/O and starts nothing; the first event starts a goroutine and the connection, and
// a second one where events are kept. All problems of c are reported together.
func New(c Config) (*Bus, error) {
	c, err := c.complete()
	conn, connErr := natsconn.New(c.Connect, "", c.Logger)
	if err := errors.Join(err, connErr); err != nil {
		return nil, err
	}
	c.Connect.URLs = nil // they hold passwords and are not needed any more
	b := &Bus{cfg: c, names: namesOf(c.Namespace), conn: conn, streams: make(map[stream]struct{})}
	b.batcher = events.NewBatcher(b.send, c.Batch)
	if c.Retain.On() {
		b.keeper = newKeeper(b)
	}
	return b, nil
}

// send publishes one message, and hands what has to be kept of it to the keeper. It returns when the message is in the
// connection's buffer, which is bounded.
func (b *Bus) send(ctx context.Context, message []byte, n int) error {
	sess, err := b.conn.Session(ctx)
	if err != nil {
		return err
	}
	if err := sess.WaitRoom(ctx); err != nil {
		return err
	}
	var parts [][]byte
	if b.keeper != nil || int64(len(message)) > sess.MaxPayload {
		parts = split(message, n)
	}
	if int64(len(message)) <= sess.MaxPayload {
		if err := b.publish(sess, message); err != nil {
			return err
		}
	} else if err := b.publishParts(sess, parts); err != nil {
		return err
	}
	if b.keeper != nil {
		b.keeper.add(parts)
	}
	return nil
}

// publishParts publishes events of which the server does not take all in one message.
func (b *Bus) publishParts(sess *natsconn.Session, parts [][]byte) error {
	for _, message := range pack(parts, int(sess.MaxPayload)) {
		err := b.publish(sess, message)
		if errors.Is(err, nats.ErrMaxPayload) { // a single event
			b.dropped.Add(1)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (b *Bus) publish(sess *natsconn.Session, message []byte) error {
	return sess.NATS.Publish(b.names.live, message)
}

// Publish implements [events.EventBus].
func (b *Bus) Publish(_ context.Context, e events.Event) error { return b.PublishNow(e) }

// PublishNow implements [events.PromptPublisher].
func (b *Bus) PublishNow(e events.Event) error { return b.batcher.Add(e) }

// Dropped implements [events.DropCounter]: the events published here that were given up before they reached the
// connection, because more waited than Batch.Capacity, the server could not be reached, or the event cannot be written or is
// larger than the server takes; and those that should be kept and are not.
func (b *Bus) Dropped() uint64 {
	n := b.batcher.Dropped() + b.dropped.Load()
	if b.keeper != nil {
		n += b.keeper.dropped()
	}
	return n
}

// Close implements [events.EventBus]: it sends what waits, so that the server has it when Close returns nil, ends the
// subscriptions and closes the connection. When ctx ends first, what is left is dropped and the error is ctx's. A server that
// cannot be reached costs up to twice Batch.SendTimeout.
func (b *Bus) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	open := slices.Collect(maps.Keys(b.streams))
	b.mu.Unlock()
	errs := []error{b.batcher.Close(ctx)}
	if b.keeper != nil {
		errs = append(errs, b.keeper.close(ctx))
	}
	for _, s := range open {
		s.end()
	}
	errs = append(errs, failure("close", b.conn.Close(ctx)))
	b.tasks.Wait() // nothing holds them up once the connection is closed
	return errors.Join(errs...)
}

// register notes an open subscription, unless the bus is closed.
func (b *Bus) register(s stream) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.streams[s] = struct{}{}
	}
	return !b.closed
}

// forget is told of a subscription that ends.
func (b *Bus) forget(s stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.streams, s)
}

// spawn runs fn beside, unless the bus is closed: then the connection takes all along that fn might have to clean up. The
// client library holds its lock while it dials, so that whoever calls it may have to wait.
func (b *Bus) spawn(fn func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.tasks.Go(fn)
	}
	return !b.closed
}

// isClosed reports whether Close has been called.
func (b *Bus) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// failure puts the port's class beside a connection's error.
func failure(what string, err error) error {
	if err == nil {
		return nil
	}
	class := events.ErrUnavailable
	// A connection that was closed may be the reason of ErrUnavailable, and is not for good then.
	if errors.Is(err, natsconn.ErrClosed) && !errors.Is(err, natsconn.ErrUnavailable) {
		class = events.ErrClosed
	}
	return fmt.Errorf("nats events %s: %w: %w", what, class, err)
}

var (
	_ events.EventBus        = (*Bus)(nil)
	_ events.Retainer        = (*Bus)(nil)
	_ events.DropCounter     = (*Bus)(nil)
	_ events.PromptPublisher = (*Bus)(nil)
	_ events.Subscription    = (*listener)(nil)
	_ events.DropCounter     = (*listener)(nil)
	_ events.Subscription    = (*replay)(nil)
	_ events.DropCounter     = (*replay)(nil)
)
