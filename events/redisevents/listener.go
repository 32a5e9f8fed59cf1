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

// listener is a subscription to what is published from now on. The connection's goroutine decodes into a bounded buffer.
type listener struct {
	*ring.Stream[events.Event]
	bus       *Bus
	filter    events.Filter
	conn      *redisconn.Listener
	malformed atomic.Uint64
	confirmed bool  // the subscription, once; as the next, only for the connection's goroutine
	lost      error // why the connection before this one ended
}

// Subscribe implements [events.EventBus]: it returns when the server has confirmed the subscription. Without a server it
// waits until ctx ends; a refusal of the credentials or of the channel is returned at once. Both are [events.ErrUnavailable].
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
	l.conn = b.conn.Listen(redisconn.ListenerConfig{Message: l.take, Subscribed: l.subscribed, Lost: func(err error) { l.lost = err }})
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

// subscribed is told when the server has confirmed the subscription.
func (l *listener) subscribed(channel string) {
	if l.confirmed {
		l.bus.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "event listener was interrupted, events are missing",
			slog.String("channel", channel), slog.Any("error", l.lost))
	}
	l.confirmed = true
}

// take hands on the events of a message that the subscriber wants. A message that is none counts as one dropped event.
func (l *listener) take(_, message string) {
	es, err := events.Decode([]byte(message))
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
// hold no events. What got lost on the way is not known.
func (l *listener) Dropped() uint64 { return l.Stream.Dropped() + l.malformed.Load() }

// Close implements [events.Subscription]. It waits for nothing.
func (l *listener) Close(context.Context) error {
	l.end()
	return nil
}

func (l *listener) end() {
	l.Stream.Close()
	l.conn.Close()
	l.bus.remove(l)
}
