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

// Limits of the messages that wait for a listener's goroutine to decode them. Beyond them the
// client library drops the newest.
const (
	pendingMessages = 4096
	pendingBytes    = 16 << 20
)

// listener is a subscription to new events. The client library's goroutine decodes messages into a
// limited buffer.
type listener struct {
	*ring.Stream[events.Event]
	bus       *Bus
	filter    events.Filter
	sub       *nats.Subscription
	malformed atomic.Uint64
	missed    atomic.Uint64 // messages that the client library dropped, at the last call of Dropped
	once      sync.Once
}

// Subscribe implements [events.EventBus]: it returns a stream of the new events that match f. It
// blocks until the server has received the subscription. If ctx has already ended, it returns ctx's
// error unwrapped. It takes b.mu, but not while it waits.
//
// Without a server it waits until ctx ends. A refusal of the credentials is returned at once. Both
// are [events.ErrUnavailable]. Returns ErrClosed after Close.
func (b *Bus) Subscribe(ctx context.Context, f events.Filter) (events.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.Types = slices.Clone(f.Types)
	l := &listener{Stream: ring.NewStream[events.Event](b.cfg.Buffer, events.ErrClosed), bus: b, filter: f}
	err := b.conn.Do(ctx, func(_ context.Context, sess *natsconn.Session) (err error) {
		if l.sub, err = sess.NATS.Subscribe(b.names.live, l.onMessage); err != nil {
			return err
		}
		return l.sub.SetPendingLimits(pendingMessages, pendingBytes)
	})
	if err == nil {
		err = b.flush(ctx)
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

// flush waits until a server has processed all that was written to the connection. After a lost
// connection it waits for the next one, on which the client library subscribes again. Returns the
// error when ctx ends or the connection is closed for good.
func (b *Bus) flush(ctx context.Context) error {
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

// onMessage adds the matching events of a message to the buffer. It counts an invalid message as
// one dropped event. It runs on the subscription's goroutine and does not block.
func (l *listener) onMessage(m *nats.Msg) {
	es, err := l.filter.Decode(m.Data)
	if err != nil {
		l.malformed.Add(1)
		return
	}
	for i := range es {
		l.Put(&es[i])
	}
}

// Receive implements [events.Subscription]: it waits for the next event in the buffer and returns
// it, also if ctx has ended. Returns ctx's error when ctx ends and ErrClosed after Close of the
// subscription or the bus.
func (l *listener) Receive(ctx context.Context) (events.Event, error) { return l.Get(ctx) }

// Dropped implements [events.DropCounter]: it counts events that newer ones replaced in the buffer,
// invalid messages, and messages that arrived faster than they were decoded. It keeps the client
// library's count of the latter for calls after Close.
func (l *listener) Dropped() uint64 {
	if n, err := l.sub.Dropped(); err == nil && n > 0 {
		l.missed.Store(uint64(n))
	}
	return l.Stream.Dropped() + l.malformed.Load() + l.missed.Load()
}

// Close implements [events.Subscription]: it ends the subscription, so that every Receive returns
// ErrClosed. It does not block and returns nil. It takes bus.mu.
func (l *listener) Close(context.Context) error {
	l.end()
	return nil
}

// end ends the stream, drops its buffered events, removes it from the bus and unsubscribes on a
// goroutine. After Close of the bus it does not unsubscribe, since the connection ends. It does not
// block. Further calls do nothing. It takes bus.mu.
func (l *listener) end() {
	l.once.Do(func() {
		l.Stream.Close()
		l.bus.unregister(l)
		if l.sub != nil {
			// fails only when the connection is closed for good
			l.bus.spawn(func() { _ = l.sub.Unsubscribe() })
		}
	})
}
