package eventstest

import (
	"context"

	"github.com/swarmiji/swarmiji/events"
)

func closeCases() []testCase {
	return []testCase{
		{
			area: "close", name: "a closed bus",
			explain: "Publish and Subscribe return ErrClosed after Close; Close is idempotent.",
			run: func(w *world) {
				b := w.open()
				w.closeBus(b)
				w.closeBus(b)
				w.wantIs(b.Publish(context.Background(), w.event()), events.ErrClosed, "Publish")
				ctx, cancel := w.ctx()
				defer cancel()
				_, err := b.Subscribe(ctx, events.Filter{})
				w.wantIs(err, events.ErrClosed, "Subscribe")
			},
		},
		{
			area: "close", name: "Close sends what is waiting",
			explain: "Close sends what is waiting, within ctx: the last events of a process tell how its tasks ended.",
			run: func(w *world) {
				b := w.open()
				s := w.all(w.open())
				es := w.send(b, 350)
				w.closeBus(b)
				w.wantAll(s, es, "events published right before Close")
			},
		},
		{
			area: "close", name: "its subscriptions end",
			explain: "Close releases all resources: a Receive that waits returns ErrClosed, else its goroutine would stay for ever.",
			run: func(w *world) {
				b := w.open()
				s := w.all(b)
				ended := make(chan error, 1)
				go func() { _, err := s.Receive(context.Background()); ended <- err }()
				w.closeBus(b)
				w.wantIs(ends(w, ended, "Receive after the bus was closed"), events.ErrClosed, "Receive")
				w.closeSub(s)
			},
		},
		{
			area: "close", name: "a closed subscription",
			explain: "Close ends the stream, for a Receive that waits as well, with ErrClosed; it is idempotent and leaves other subscriptions alone.",
			run: func(w *world) {
				b := w.open()
				s, other := w.all(b), w.all(b)
				ended := make(chan error, 1)
				go func() { _, err := s.Receive(context.Background()); ended <- err }()
				w.closeSub(s)
				w.wantIs(ends(w, ended, "a waiting Receive after Close"), events.ErrClosed, "Receive")
				w.closeSub(s)
				ctx, cancel := w.ctx()
				defer cancel()
				_, err := s.Receive(ctx)
				w.wantIs(err, events.ErrClosed, "Receive of a closed subscription")
				w.wantAll(other, w.send(b, 3), "the other subscription")
			},
		},
		{
			area: "close", name: "other processes go on",
			explain: "Close ends this process's view and nobody else's.",
			run: func(w *world) {
				a, b := w.open(), w.open()
				s := w.all(b)
				w.wantAll(s, w.send(a, 3), "before Close")
				w.closeBus(a)
				w.wantAll(s, w.send(b, 3), "after another process's Close")
			},
		},
		{
			area: "close", name: "Receive ends with its context",
			explain: "Receive returns ctx's error when that ends, and takes no event with it.",
			run: func(w *world) {
				b := w.open()
				s := w.all(b)
				w.nothing(s, "an empty stream")
				ctx, cancel := context.WithCancel(context.Background())
				ended := make(chan error, 1)
				go func() { _, err := s.Receive(ctx); ended <- err }()
				cancel()
				w.wantIs(ends(w, ended, "Receive after its context was cancelled"), context.Canceled, "Receive")
				w.wantAll(s, w.send(b, 3), "after a Receive that ended")
			},
		},
	}
}
