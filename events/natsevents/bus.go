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

// Bus publishes and listens over one connection, which it opens at the first use. All methods are
// safe for concurrent use.
type Bus struct {
	cfg     Config
	names   names
	conn    *natsconn.Conn
	batcher *events.Batcher
	keeper  *keeper       // nil: no event is kept
	dropped atomic.Uint64 // events that are too large for the server

	mu      sync.Mutex
	closed  bool
	streams map[stream]struct{}
	tasks   sync.WaitGroup // goroutines of spawn
}

// stream is a listener or a replay, which Close of the bus ends.
type stream interface {
	end()
}

// New checks c and makes a Bus. It does no I/O and starts no goroutine. The first event starts a
// goroutine and the connection, and a second goroutine if events are kept. New returns all problems
// of c in one error.
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

// send publishes one message of n events, and passes its events to the keeper. The batcher's
// goroutine calls it. It waits for a connection with space in its limited buffer, and returns when
// the message is in it. A message above the server's max_payload is published in several parts.
//
// Returns the error of the connection, also if ctx ends first, or of the client library. Parts may
// then be published, but the keeper does not get the events.
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

// publishParts publishes events in messages of at most the server's max_payload. It drops a single
// event that is larger, and adds it to b.dropped. It stops at the first other error and returns
// it; the messages before it stay published. It does not wait.
func (b *Bus) publishParts(sess *natsconn.Session, parts [][]byte) error {
	for _, message := range joinEvents(parts, int(sess.MaxPayload)) {
		err := b.publish(sess, message)
		if errors.Is(err, nats.ErrMaxPayload) { // a single event
			b.dropped.Add(1)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// publish writes a message to the connection's buffer, for the subject of all events. It does not
// wait. Returns the client library's error, for example ErrMaxPayload for a too large message.
func (b *Bus) publish(sess *natsconn.Session, message []byte) error {
	return sess.NATS.Publish(b.names.live, message)
}

// Publish implements [events.EventBus]: it calls PublishNow and ignores its context.
func (b *Bus) Publish(_ context.Context, e events.Event) error { return b.PublishNow(e) }

// PublishNow implements [events.PromptPublisher]: it queues e in the Batcher, which may drop the
// oldest waiting event, and never blocks. Returns ErrClosed after Close.
func (b *Bus) PublishNow(e events.Event) error { return b.batcher.Add(e) }

// Dropped implements [events.DropCounter]. It counts events published on this bus that were dropped
// before they reached the connection: more than Batch.Capacity waited, the server could not be
// reached, or the event could not be encoded or was too large. It also counts events of kept types
// that were published but not stored.
func (b *Bus) Dropped() uint64 {
	n := b.batcher.Dropped() + b.dropped.Load()
	if b.keeper != nil {
		n += b.keeper.dropped()
	}
	return n
}

// Close implements [events.EventBus]. It sends and stores the waiting events, ends the
// subscriptions, whose unread events are dropped, and closes the connection. After nil the server
// has received all events.
//
// If ctx ends first it drops the rest and returns ctx's error. An unreachable server delays Close
// by up to twice Batch.SendTimeout. It takes b.mu, but not while it waits.
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
	b.tasks.Wait() // no goroutine blocks on a closed connection
	return errors.Join(errs...)
}

// register adds an open subscription, so that Close ends it. It returns false after Close. It takes
// b.mu.
func (b *Bus) register(s stream) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.streams[s] = struct{}{}
	}
	return !b.closed
}

// unregister removes a subscription that ends. It takes b.mu.
func (b *Bus) unregister(s stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.streams, s)
}

// spawn runs fn on a goroutine for which Close waits, and returns true. After Close it does not
// run fn and returns false, because closing the connection already cleaned up. Callers use it for
// calls of the client library that may block: the library holds its lock while it dials. It takes
// b.mu.
func (b *Bus) spawn(fn func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.tasks.Go(fn)
	}
	return !b.closed
}

// isClosed reports whether Close was called. It takes b.mu.
func (b *Bus) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// failure wraps err with the matching error of the port and the name of the operation: ErrClosed
// if the bus is closed, otherwise ErrUnavailable. It returns nil for nil.
func failure(what string, err error) error {
	if err == nil {
		return nil
	}
	class := events.ErrUnavailable
	// ErrUnavailable may have ErrClosed of one connection as its cause; that connection is replaced.
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
