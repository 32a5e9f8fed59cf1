package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker"
)

func closeCases() []testCase {
	return []testCase{
		{
			area: "close", name: "Subscription.Close gives back what was not handed out",
			explain: "What a closed subscription held but had not handed out goes back without delay; what was handed out can still be settled.",
			run: func(w *world) {
				b1, b2 := w.open(), w.open()
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
				ctx, cancel := w.ctx()
				defer cancel()
				w.must(released.Release(ctx, 0), "Release after Subscription.Close")
				w.drain(s2, name(released.Message()))
			},
		},
		{
			area: "close", name: "a closed Subscription gives ErrClosed",
			explain: "Receive returns ErrClosed after Close, and a Receive that waits returns it at Close. Close is idempotent.",
			run: func(w *world) {
				b := w.open()
				q := w.queue(b, "sub")
				s := w.subscribe(b, q, 1)
				waiting := w.async(func(ctx context.Context) error { _, err := s.Receive(ctx); return err })
				for range 2 {
					w.closeSub(s)
				}
				w.wantIs(result(w, waiting, "Receive"), broker.ErrClosed, "Receive that waited for a message at Close")
				w.publish(b, q, msg("a"))
				ctx, cancel := w.ctx()
				defer cancel()
				_, err := s.Receive(ctx)
				w.wantIs(err, broker.ErrClosed, "Receive after Close")
				w.drain(w.subscribe(b, q, 1), "a/0")
			},
		},
		{
			area: "close", name: "Broker.Close gives back everything",
			explain: "Broker.Close gives back what its subscriptions hold, handed out or not, without delay. A settlement after it has no effect and says so.",
			run: func(w *world) {
				b1, b2 := w.open(), w.open()
				q := w.queue(b2, "everything")
				ms := msgs("m", 6)
				w.publish(b1, q, ms...)
				s1 := w.subscribe(b1, q, 6)
				d := w.receiveN(s1, 2)
				w.closeBroker(b1)
				ctx, cancel := w.ctx()
				defer cancel()
				if err := w.clean(d[0].Ack(ctx)); !errors.Is(err, broker.ErrClosed) && !errors.Is(err, broker.ErrLeaseLost) {
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
			area: "close", name: "Lost is closed by Broker.Close",
			explain: "Broker.Close takes the unsettled deliveries back, so it closes their Lost: whoever works on them is to stop.",
			run: func(w *world) {
				b := w.open()
				q := w.queue(b, "lost")
				w.publish(b, q, msg("a"))
				d := w.receive(w.subscribe(b, q, 1))
				w.closeBroker(b)
				w.await(d.Lost(), "Lost after Broker.Close")
			},
		},
		{
			area: "close", name: "a closed Broker gives ErrClosed",
			explain: "Every method of a closed Broker, and Receive of its subscriptions, returns ErrClosed; a Receive that waits returns it at Close. Close is idempotent, also from several goroutines.",
			run: func(w *world) {
				b := w.open()
				q := w.queue(b, "closed")
				s := w.subscribe(b, q, 1)
				waiting := w.async(func(ctx context.Context) error { _, err := s.Receive(ctx); return err })
				ctx, cancel := w.ctx()
				defer cancel()
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						if err := w.clean(b.Close(ctx)); err != nil {
							w.Errorf("Broker.Close: %v", err)
						}
					})
				}
				wg.Wait()
				w.wantIs(result(w, waiting, "Receive"), broker.ErrClosed, "Receive that waited for a message at Broker.Close")
				_, err := s.Receive(ctx)
				w.wantIs(err, broker.ErrClosed, "Receive after Broker.Close")
				w.wantIs(b.Publish(ctx, q, msg("a")), broker.ErrClosed, "Publish after Broker.Close")
				_, err = b.Subscribe(ctx, q, broker.SubscribeOptions{})
				w.wantIs(err, broker.ErrClosed, "Subscribe after Broker.Close")
				for what, call := range methodsOfQueue(b) {
					w.wantIs(call(ctx, q), broker.ErrClosed, "%s after Broker.Close", what)
				}
				w.closeSub(s)
				w.closeBroker(b)
			},
		},
		{
			area: "close", name: "Close under load",
			explain: "Close ends what is under way: calls return, with nil or an error of the port, and every confirmed message is there for others.",
			run: func(w *world) {
				b, other := w.open(), w.open()
				q := w.queue(other, "load")
				s := w.subscribe(b, q, 4)
				started := make(chan struct{}, 64)
				ctx, cancel := w.ctx()
				defer cancel()
				var mu sync.Mutex
				confirmed := map[string]bool{}
				var wg sync.WaitGroup
				for p := range 4 {
					wg.Go(func() {
						for i := range 500 {
							m := msg(fmt.Sprintf("p%d-%d", p, i))
							err := w.clean(b.Publish(ctx, q, m))
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
								w.wantIs(err, broker.ErrClosed, "Receive at Close")
								return
							}
							if err := w.clean(d.Release(ctx, 0)); err != nil && !errors.Is(err, broker.ErrClosed) && !transient(err) {
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
			area: "close", name: "no goroutine is left",
			explain: "Close releases all resources: no goroutine of the Broker or its subscriptions runs after it.",
			run: func(w *world) {
				before := goleak.IgnoreCurrent()
				b := w.open()
				q := w.queue(b, "leak")
				w.publish(b, q, msgs("m", 4)...)
				s, unclosed := w.subscribe(b, q, 2), w.subscribe(b, q, 2)
				d := w.receive(s)
				if w.h.Sever != nil {
					w.h.Sever(w.TB, b)
					w.await(d.Lost(), "Lost after the connection was cut")
				}
				w.closeSub(s)
				w.ack(w.receive(unclosed))
				w.closeBroker(b)
				var leak error
				ok := w.poll(func() bool { leak = goleak.Find(before); return leak == nil })
				if !ok {
					w.Errorf("after Broker.Close: %v", leak)
				}
			},
		},
	}
}
