package brokertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/suite"
)

// closeCases returns the cases of Close of a Subscription and of a Broker.
func closeCases() []testCase {
	return []testCase{
		{
			Area: "close", Name: "Subscription.Close gives back what was not handed out",
			Explain: "The messages that a closed subscription held and Receive had not returned go back without delay; those that Receive had returned can still be settled.",
			Run: func(w *world) {
				b1, b2 := w.Open(), w.Open()
				q := w.queue(b1, "giveback")
				w.publish(b1, q, msgs("m", 6)...)
				s1 := w.subscribe(b1, q, 6)
				acked, released := w.receive(s1), w.receive(s1)
				w.closeSub(s1)
				s2 := w.subscribe(b2, q, 0)
				for range 4 {
					d := w.receive(s2)
					if n := name(d.Message()); n == name(acked.Message()) || n == name(released.Message()) {
						w.Errorf("%s is handed out twice: the closed subscription had handed it out", n)
					}
					w.ack(d)
				}
				w.nothing(s2, "two deliveries are still unsettled")
				w.ack(acked)
				ctx, cancel := w.Ctx()
				defer cancel()
				w.Must(released.Release(ctx, 0), "Release after Subscription.Close")
				w.drain(s2, name(released.Message()))
			},
		},
		{
			Area: "close", Name: "a closed Subscription gives ErrClosed",
			Explain: "Receive returns ErrClosed after Close, and a Receive that waits returns it at Close. Close is idempotent.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "sub")
				s := w.subscribe(b, q, 1)
				waiting := w.async(func(ctx context.Context) error { _, err := s.Receive(ctx); return err })
				for range 2 {
					w.closeSub(s)
				}
				w.WantIs(suite.Ends(w.World, waiting, "Receive"), broker.ErrClosed, "Receive that waited for a message at Close")
				w.publish(b, q, msg("a"))
				ctx, cancel := w.Ctx()
				defer cancel()
				_, err := s.Receive(ctx)
				w.WantIs(err, broker.ErrClosed, "Receive after Close")
				w.drain(w.subscribe(b, q, 1), "a/0")
			},
		},
		{
			Area: "close", Name: "Broker.Close gives back everything",
			Explain: "Broker.Close returns the messages of its subscriptions without delay, also those that Receive has returned. A settlement after it has no effect and returns an error.",
			Run: func(w *world) {
				b1, b2 := w.Open(), w.Open()
				q := w.queue(b2, "everything")
				ms := msgs("m", 6)
				w.publish(b1, q, ms...)
				s1 := w.subscribe(b1, q, 6)
				d := w.receiveN(s1, 2)
				w.closeBroker(b1)
				ctx, cancel := w.Ctx()
				defer cancel()
				if err := w.Clean(d[0].Ack(ctx)); !errors.Is(err, broker.ErrClosed) && !errors.Is(err, broker.ErrLeaseLost) {
					w.Errorf("Ack after Broker.Close: got error %v, want ErrClosed or ErrLeaseLost", err)
				}
				for n, count := range w.drain(w.subscribe(b2, q, 0), names(ms...)...) {
					if count != 1 {
						w.Errorf("%s was seen %d times, want once", n, count)
					}
				}
			},
		},
		{
			Area: "close", Name: "Lost is closed by Broker.Close",
			Explain: "Broker.Close takes the unsettled deliveries back, so it closes their Lost channel: handlers must stop.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "lost")
				w.publish(b, q, msg("a"))
				d := w.receive(w.subscribe(b, q, 1))
				w.closeBroker(b)
				suite.Ends(w.World, d.Lost(), "Lost after Broker.Close")
			},
		},
		{
			Area: "close", Name: "a closed Broker gives ErrClosed",
			Explain: "Every method of a closed Broker, and Receive of its subscriptions, returns ErrClosed; a Receive that waits returns it at Close. Close is idempotent, also from several goroutines.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "closed")
				s := w.subscribe(b, q, 1)
				waiting := w.async(func(ctx context.Context) error { _, err := s.Receive(ctx); return err })
				ctx, cancel := w.Ctx()
				defer cancel()
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						if err := w.Clean(b.Close(ctx)); err != nil {
							w.Errorf("Broker.Close: %v", err)
						}
					})
				}
				wg.Wait()
				w.WantIs(suite.Ends(w.World, waiting, "Receive"), broker.ErrClosed, "Receive that waited for a message at Broker.Close")
				_, err := s.Receive(ctx)
				w.WantIs(err, broker.ErrClosed, "Receive after Broker.Close")
				w.WantIs(b.Publish(ctx, q, msg("a")), broker.ErrClosed, "Publish after Broker.Close")
				_, err = b.Subscribe(ctx, q, broker.SubscribeOptions{})
				w.WantIs(err, broker.ErrClosed, "Subscribe after Broker.Close")
				for what, call := range methodsOfQueue(b) {
					w.WantIs(call(ctx, q), broker.ErrClosed, "%s after Broker.Close", what)
				}
				w.closeSub(s)
				w.closeBroker(b)
			},
		},
		{
			Area: "close", Name: "Close under load",
			Explain: "Close ends the calls in progress: they return nil or an error of the port, and other Brokers see every confirmed message.",
			Run: func(w *world) {
				b, other := w.Open(), w.Open()
				q := w.queue(other, "load")
				s := w.subscribe(b, q, 4)
				started := make(chan struct{}, 64)
				ctx, cancel := w.Ctx()
				defer cancel()
				var mu sync.Mutex
				confirmed := map[string]bool{}
				var wg sync.WaitGroup
				for p := range 4 {
					wg.Go(func() {
						for i := range 500 {
							m := msg(fmt.Sprintf("p%d-%d", p, i))
							err := w.Clean(b.Publish(ctx, q, m))
							select {
							case started <- struct{}{}:
							default:
							}
							if err != nil {
								if !errors.Is(err, broker.ErrClosed) && !transient(err) {
									w.Errorf("Publish at Close: %v", err)
								}
								return
							}
							mu.Lock()
							confirmed[name(m)] = true
							mu.Unlock()
						}
					})
					wg.Go(func() {
						for {
							d, err := s.Receive(ctx)
							if err != nil {
								w.WantIs(err, broker.ErrClosed, "Receive at Close")
								return
							}
							if err := w.Clean(d.Release(ctx, 0)); err != nil && !errors.Is(err, broker.ErrClosed) && !transient(err) {
								w.Errorf("Release at Close: %v", err)
							}
						}
					})
				}
				for range 8 {
					<-started
				}
				w.closeBroker(b)
				wg.Wait()
				left := confirmed
				s2 := w.subscribe(other, q, 0)
				for len(left) > 0 {
					d := w.receive(s2)
					delete(left, name(d.Message()))
					w.ack(d)
				}
			},
		},
		{
			Area: "close", Name: "no goroutine is left",
			Explain: "Close releases all resources: no goroutine of the Broker or its subscriptions runs after it.",
			Run: func(w *world) {
				var t tracker
				stop := make(chan struct{})
				t.run(func() { go func() { <-stop }() })
				if len(t.running()) != 1 {
					w.Fatalf("the tracker found %d goroutines of one", len(t.running()))
				}
				close(stop)
				t.run(func() {
					b := w.Open()
					q := w.queue(b, "leak")
					w.publish(b, q, msgs("m", 4)...)
					s, unclosed := w.subscribe(b, q, 2), w.subscribe(b, q, 2)
					d := w.receive(s)
					if w.h.Sever != nil {
						w.h.Sever(w.TB, b)
					}
					if w.h.Sever != nil && !w.h.Promises.Outlives {
						suite.Ends(w.World, d.Lost(), "Lost after the connection was cut")
					}
					w.closeSub(s)
					w.ackAfterCut(unclosed)
					w.closeBroker(b)
				})
				if !w.Poll(func() bool { return len(t.running()) == 0 }) {
					w.Errorf("after Broker.Close: %s", strings.Join(t.running(), "\n\n"))
				}
			},
		},
	}
}
