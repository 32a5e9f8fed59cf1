package redisevents

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/ring"
)

// listener is a subscription to new events. The goroutine of its connection decodes messages into a
// limited buffer.
type listener struct {
	*ring.Stream[events.Event]
	bus       *Bus
	filter    events.Filter
	conn      *redisconn.Listener
	malformed atomic.Uint64
	// the subscription was confirmed once; like lost, used only by the connection's goroutine
	confirmed bool
	lost      error // why the previous connection ended
}

// Subscribe implements [events.EventBus]: it returns a stream of the new events that match f. It
// opens a connection and blocks until the server has confirmed the subscription. If ctx has already
// ended, it returns ctx's error unwrapped. It takes b.mu, but not while it waits.
//
// Without a server it waits until ctx ends. A refusal of the credentials or of the channel is
// returned at once. Both are [events.ErrUnavailable]. Returns ErrClosed after Close.
func (b *Bus) Subscribe(ctx context.Context, f events.Filter) (events.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.Types = slices.Clone(f.Types)
	l := &listener{
		Stream: ring.NewStream[events.Event](b.cfg.Buffer, events.ErrClosed),
		bus:    b,
		filter: f,
	}
	l.conn = b.conn.Listen(redisconn.ListenerConfig{Message: l.onMessage, Subscribed: l.subscribed, Lost: func(err error) { l.lost = err }})
	err := b.add(l)
	if err == nil {
		err = failure("listener", l.conn.Subscribe(ctx, b.names.channel))
	}
	if err != nil {
		l.end()
		return nil, err
	}
	return l, nil
}

// subscribed logs a warning at each confirmation of the subscription after the first: events were
// missed while the connection was lost. It runs on the connection's goroutine.
func (l *listener) subscribed(channel string) {
	if l.confirmed {
		l.bus.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "event listener was interrupted; events of that time are missing",
			slog.String("channel", channel), slog.Any("error", l.lost))
	}
	l.confirmed = true
}

// onMessage adds the matching events of a message to the buffer. It counts an invalid message as
// one dropped event. It runs on the connection's goroutine and does not block.
func (l *listener) onMessage(_, message string) {
	es, err := l.filter.Decode([]byte(message))
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
// and invalid messages. Events lost on the way are not counted.
func (l *listener) Dropped() uint64 { return l.Stream.Dropped() + l.malformed.Load() }

// Close implements [events.Subscription]: it ends the subscription, so that every Receive returns
// ErrClosed, and its connection. It does not block and returns nil. It takes bus.mu.
func (l *listener) Close(context.Context) error {
	l.end()
	return nil
}

// end ends the subscription, drops its buffered events, closes its connection and removes it from
// the bus. It does not block. It takes bus.mu.
func (l *listener) end() {
	l.Stream.Close()
	l.conn.Close()
	l.bus.remove(l)
}
