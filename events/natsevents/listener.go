package natsevents

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/ring"
)

// Messages that wait for a listener's goroutine, which decodes them. Beyond that the client library drops the newest.
const (
	pendingMessages = 4096
	pendingBytes    = 16 << 20
)

// listener is one subscription: the client library's goroutine decodes into a bounded buffer.
type listener struct {
	*ring.Stream[events.Event]
	bus       *Bus
	filter    events.Filter
	sub       *nats.Subscription
	malformed atomic.Uint64
	missed    atomic.Uint64 // messages that the client library dropped, as far as was asked
	once      sync.Once
}

// Subscribe implements [events.EventBus]: it returns when the server knows of the subscription. Without a server it waits
// until ctx ends; a refusal of the credentials is returned at once. Both are [events.ErrUnavailable].
func (b *Bus) Subscribe(ctx context.Context, f events.Filter) (events.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.Types = slices.Clone(f.Types)
	l := &listener{Stream: ring.NewStream[events.Event](b.cfg.Buffer, events.ErrClosed), bus: b, filter: f}
	err := b.conn.Do(ctx, func(_ context.Context, sess *natsconn.Session) (err error) {
		if l.sub, err = sess.NATS.Subscribe(b.names.live, l.take); err != nil {
			return err
		}
		return l.sub.SetPendingLimits(pendingMessages, pendingBytes)
	})
	if err == nil {
		err = b.seen(ctx)
	}
	if err == nil && !b.register(l) {
		err = natsconn.ErrClosed
	}
	if err != nil {
		l.end()
		return nil, failure("listener", err)
	}
	return l, nil
}

// seen waits until the server has seen what was written. The client library subscribes anew after a loss; what counts is that
// a server knows now.
func (b *Bus) seen(ctx context.Context) error {
	for {
		if _, err := b.conn.Session(ctx); err != nil {
			return err
		}
		err := b.conn.Flush(ctx)
		if err == nil || errors.Is(err, natsconn.ErrClosed) || ctx.Err() != nil {
			return err
		}
	}
}

// take hands on the events of a message that the subscriber wants. A message that is none counts as one dropped event.
func (l *listener) take(m *nats.Msg) {
	es, err := events.Decode(m.Data)
	if err != nil {
		l.malformed.Add(1)
		return
	}
	for i := range es {
		if l.filter.Match(&es[i]) {
			l.Put(&es[i])
		}
	}
}

// Receive implements [events.Subscription].
func (l *listener) Receive(ctx context.Context) (events.Event, error) { return l.Get(ctx) }

// Dropped implements [events.DropCounter]: events that gave way to newer ones in this process's buffer, and messages that
// hold no events or came faster than they were decoded.
func (l *listener) Dropped() uint64 {
	if n, err := l.sub.Dropped(); err == nil && n > 0 {
		l.missed.Store(uint64(n))
	}
	return l.Stream.Dropped() + l.malformed.Load() + l.missed.Load()
}

// Close implements [events.Subscription]. It returns nil.
func (l *listener) Close(context.Context) error {
	l.end()
	return nil
}

// end ends the stream without waiting.
func (l *listener) end() {
	l.once.Do(func() {
		l.Stream.Close()
		l.bus.forget(l)
		if l.sub != nil {
			l.bus.spawn(func() { _ = l.sub.Unsubscribe() }) // it fails when the connection is closed for good
		}
	})
}
