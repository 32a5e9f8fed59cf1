package eventstest

import (
	"context"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/suite"
)

// wrapper and streamWrapper wrap a bus or a subscription without its optional interfaces, as users
// write them.
type (
	wrapper       struct{ events.EventBus }
	streamWrapper struct{ events.Subscription }
)

// Unwrap returns the wrapped bus, so that capability.As finds its optional interfaces.
func (w wrapper) Unwrap() any { return w.EventBus }

// Unwrap returns the wrapped subscription, so that capability.As finds its optional interfaces.
func (w streamWrapper) Unwrap() any { return w.Subscription }

// closeCases returns the cases of the behaviour of Close.
func closeCases() []testCase {
	return []testCase{
		{
			Area: "close", Name: "a wrapper keeps every capability",
			Explain: "Users wrap buses to count or to filter. The optional capabilities of the bus are found through a wrapper with an Unwrap method.",
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
			Explain: "Publish and Subscribe return ErrClosed after Close. Further calls of Close do nothing.",
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
			Explain: "Close sends the waiting events until ctx ends: the last events of a process show how its tasks ended.",
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
			Explain: "Close releases all resources: a waiting Receive returns ErrClosed. Otherwise its goroutine would leak.",
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
			Explain: "Close ends the stream and makes a waiting Receive return ErrClosed. Further calls do nothing, and other subscriptions continue.",
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
			Explain: "Close ends only the view of this process.",
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
			Explain: "Receive returns ctx's error when ctx ends, and loses no event.",
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
