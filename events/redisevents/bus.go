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

// Bus publishes over the connections of one client, and listens over one more for each subscription; each is opened when it
// is first used. All methods may be called from any goroutine.
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

// subscription is what Close has to end.
type subscription interface{ end() }

// New checks c and makes a Bus. It does no I/O and starts nothing; the first event starts one goroutine. All problems of c
// are reported together.
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

// send publishes one message, and keeps what has to be kept of it. It is tried again only where the server has surely not
// executed it.
func (b *Bus) send(ctx context.Context, message []byte, n int) error {
	kept, count := keep(b.cfg.Retain, message, n)
	_, err := b.conn.Eval(ctx, b.script, []string{b.names.kept},
		b.names.channel, message, b.names.news, kept, count, b.cfg.Retain.Max, max(b.cfg.Retain.Age.Milliseconds(), 1))
	return err
}

// Publish implements [events.EventBus].
func (b *Bus) Publish(_ context.Context, e events.Event) error { return b.PublishNow(e) }

// PublishNow implements [events.PromptPublisher].
func (b *Bus) PublishNow(e events.Event) error { return b.batcher.Add(e) }

// Dropped implements [events.DropCounter]: the events published here that were given up, because more waited than
// Batch.Capacity, the server could not be reached or gave no answer, or the event cannot be written.
func (b *Bus) Dropped() uint64 { return b.batcher.Dropped() }

// Close implements [events.EventBus]: it sends what waits, so that the server has taken it when Close returns nil, ends the
// subscriptions and closes the connections. When ctx ends first, what is left is dropped and the error is ctx's. A server
// that cannot be reached costs up to Batch.SendTimeout.
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

// add notes a subscription, which is then ended with the bus.
func (b *Bus) add(s subscription) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return events.ErrClosed
	}
	b.subscriptions[s] = struct{}{}
	return nil
}

func (b *Bus) remove(s subscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.subscriptions, s)
}

// pause waits before the next attempt; false if ctx or the bus ended.
func (b *Bus) pause(ctx context.Context, attempt int) bool {
	return wake.SleepOr(ctx, b.conn.Done(), b.conn.Backoff().Interval(attempt))
}

// failure puts the port's class beside a connection's error.
func failure(what string, err error) error {
	if err == nil {
		return nil
	}
	class := events.ErrUnavailable
	// A connection that was closed may be the reason of ErrUnavailable, and is not for good then.
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
