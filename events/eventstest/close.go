package eventstest

import (
	"context"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/suite"
)

// Wrappers as users write them.
type (
	wrapper       struct{ events.EventBus }
	streamWrapper struct{ events.Subscription }
)

func (w wrapper) Unwrap() any       { return w.EventBus }
func (w streamWrapper) Unwrap() any { return w.Subscription }

func closeCases() []testCase {
	return []testCase{
		{
			Area: "close", Name: "a wrapper keeps every capability",
			Explain: "Users wrap buses to count or to filter. What the bus can do besides its port is found through a wrapper that has Unwrap.",
			Run: func(w *world) {
				b := w.Open()
				suite.Keeps(w, b, wrapper{b}, suite.CapabilityOf[events.PromptPublisher](), suite.CapabilityOf[events.Retainer](),
					suite.CapabilityOf[events.RetentionTeller](), suite.CapabilityOf[events.DropCounter]())
				s := w.all(b)
				suite.Keeps(w, s, streamWrapper{s}, suite.CapabilityOf[events.DropCounter]())
				if p, ok := capability.As[events.PromptPublisher](wrapper{b}); ok {
					e := w.event()
					w.Must(p.PublishNow(e), "PublishNow")
					w.wantAll(s, []events.Event{e}, "what was published at once")
				}
			},
		},
		{
			Area: "close", Name: "a closed bus",
			Explain: "Publish and Subscribe return ErrClosed after Close; Close is idempotent.",
			Run: func(w *world) {
				b := w.Open()
				w.Close(b)
				w.Close(b)
				w.WantIs(b.Publish(context.Background(), w.event()), events.ErrClosed, "Publish")
				ctx, cancel := w.Ctx()
				defer cancel()
				_, err := b.Subscribe(ctx, events.Filter{})
				w.WantIs(err, events.ErrClosed, "Subscribe")
			},
		},
		{
			Area: "close", Name: "Close sends what is waiting",
			Explain: "Close sends what is waiting, within ctx: the last events of a process tell how its tasks ended.",
			Run: func(w *world) {
				b := w.Open()
				s := w.all(w.Open())
				es := w.send(b, 350)
				w.Close(b)
				w.wantAll(s, es, "events published right before Close")
			},
		},
		{
			Area: "close", Name: "its subscriptions end",
			Explain: "Close releases all resources: a Receive that waits returns ErrClosed, else its goroutine would stay for ever.",
			Run: func(w *world) {
				b := w.Open()
				s := w.all(b)
				ended := make(chan error, 1)
				go func() { _, err := s.Receive(context.Background()); ended <- err }()
				w.Close(b)
				w.WantIs(suite.Ends(w.World, ended, "Receive after the bus was closed"), events.ErrClosed, "Receive")
				w.closeSub(s)
			},
		},
		{
			Area: "close", Name: "a closed subscription",
			Explain: "Close ends the stream, for a Receive that waits as well, with ErrClosed; it is idempotent and leaves other subscriptions alone.",
			Run: func(w *world) {
				b := w.Open()
				s, other := w.all(b), w.all(b)
				ended := make(chan error, 1)
				go func() { _, err := s.Receive(context.Background()); ended <- err }()
				w.closeSub(s)
				w.WantIs(suite.Ends(w.World, ended, "a waiting Receive after Close"), events.ErrClosed, "Receive")
				w.closeSub(s)
				ctx, cancel := w.Ctx()
				defer cancel()
				_, err := s.Receive(ctx)
				w.WantIs(err, events.ErrClosed, "Receive of a closed subscription")
				w.wantAll(other, w.send(b, 3), "the other subscription")
			},
		},
		{
			Area: "close", Name: "other processes go on",
			Explain: "Close ends this process's view and nobody else's.",
			Run: func(w *world) {
				a, b := w.Open(), w.Open()
				s := w.all(b)
				w.wantAll(s, w.send(a, 3), "before Close")
				w.Close(a)
				w.wantAll(s, w.send(b, 3), "after another process's Close")
			},
		},
		{
			Area: "close", Name: "Receive ends with its context",
			Explain: "Receive returns ctx's error when that ends, and takes no event with it.",
			Run: func(w *world) {
				b := w.Open()
				s := w.all(b)
				w.nothing(s, "an empty stream")
				ctx, cancel := context.WithCancel(context.Background())
				ended := make(chan error, 1)
				go func() { _, err := s.Receive(ctx); ended <- err }()
				cancel()
				w.WantIs(suite.Ends(w.World, ended, "Receive after its context was cancelled"), context.Canceled, "Receive")
				w.wantAll(s, w.send(b, 3), "after a Receive that ended")
			},
		},
	}
}
