package redisevents

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

//go:embed send.lua
var sendSource string

// Bus publishes over the connections of one client, and each subscription has one more connection.
// A connection is opened at its first use. All methods are safe for concurrent use.
type Bus struct {
	cfg     Config
	names   names
	conn    *redisconn.Conn
	script  *redisconn.Script
	batcher *events.Batcher

	mu            sync.Mutex
	closed        bool
	subscriptions map[subscription]struct{}
}

// subscription is a listener or a replay, which Close of the bus ends.
type subscription interface{ end() }

// New checks c and makes a Bus. It does no I/O and starts no goroutine; the first event starts one.
// It returns all problems of c in one error.
func New(c Config) (*Bus, error) {
	c, err := c.complete()
	conn, connErr := redisconn.New(redisconn.Config{Redis: c.Redis, Logger: c.Logger})
	if err = errors.Join(err, connErr); err != nil {
		return nil, err
	}
	c.Redis = nil // it holds a password and is not needed any more
	b := &Bus{
		cfg:           c,
		names:         namesOf(c.Namespace),
		conn:          conn,
		script:        redisconn.NewScript(sendSource),
		subscriptions: make(map[subscription]struct{}),
	}
	b.batcher = events.NewBatcher(b.send, c.Batch)
	return b, nil
}

// send publishes one message and adds its kept events to the stream, in one script. The batcher's
// goroutine calls it. It waits for the server. It repeats the call only if the server certainly did
// not execute it, until ctx ends. After an error the message may have been published.
func (b *Bus) send(ctx context.Context, message []byte, n int) error {
	kept, count := retained(b.cfg.Retain, message, n)
	_, err := b.conn.Eval(ctx, b.script, []string{b.names.kept},
		b.names.channel, message, b.names.added, kept, count, b.cfg.Retain.Max, max(b.cfg.Retain.Age.Milliseconds(), 1))
	return err
}

// Publish implements [events.EventBus]: it calls PublishNow and ignores its context.
func (b *Bus) Publish(_ context.Context, e events.Event) error { return b.PublishNow(e) }

// PublishNow implements [events.PromptPublisher]: it queues e in the Batcher, which may drop the
// oldest waiting event, and never blocks. Returns ErrClosed after Close.
func (b *Bus) PublishNow(e events.Event) error { return b.batcher.Add(e) }

// Dropped implements [events.DropCounter]. It counts events published on this bus that were
// dropped: more than Batch.Capacity waited, the server could not be reached or gave no answer, or
// the event could not be encoded.
func (b *Bus) Dropped() uint64 { return b.batcher.Dropped() }

// Close implements [events.EventBus]. It sends the waiting events, then ends the subscriptions,
// whose unread events are dropped, and closes the connections. After nil the server has received
// all events.
//
// If ctx ends first it drops the rest and returns ctx's error. An unreachable server delays Close
// by up to Batch.SendTimeout. It takes b.mu, but not while it waits.
func (b *Bus) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	sent := b.batcher.Close(ctx)
	b.mu.Lock()
	open := slices.Collect(maps.Keys(b.subscriptions))
	b.mu.Unlock()
	for _, s := range open {
		s.end()
	}
	return errors.Join(sent, failure("close", b.conn.Close(ctx)))
}

// add registers a subscription, so that Close ends it. Returns ErrClosed after Close. It takes
// b.mu.
func (b *Bus) add(s subscription) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return events.ErrClosed
	}
	b.subscriptions[s] = struct{}{}
	return nil
}

// remove removes a subscription that ends. It takes b.mu.
func (b *Bus) remove(s subscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.subscriptions, s)
}

// pause waits for the backoff of the given attempt. It returns false if ctx or the bus ended first.
func (b *Bus) pause(ctx context.Context, attempt int) bool {
	return wake.SleepOr(ctx, b.conn.Done(), b.conn.Backoff().Interval(attempt))
}

// failure wraps err with the matching error of the port and the name of the operation: ErrClosed
// if the bus is closed, otherwise ErrUnavailable. It returns nil for nil.
func failure(what string, err error) error {
	if err == nil {
		return nil
	}
	class := events.ErrUnavailable
	// ErrUnavailable may have ErrClosed of one connection as its cause; that connection is replaced.
	if errors.Is(err, redisconn.ErrClosed) && !errors.Is(err, redisconn.ErrUnavailable) {
		class = events.ErrClosed
	}
	return fmt.Errorf("redis %s: %w: %w", what, class, err)
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
