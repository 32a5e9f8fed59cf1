package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
)

// orderCases returns the cases of order, repetition and concurrency.
func orderCases() []testCase {
	return []testCase{
		{
			Area: "order", Name: "first come, first served", Needs: []need{needsOrder},
			Explain: "The adapter promises that one publisher's messages of one priority reach a single consumer in their order.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "fifo")
				s := w.subscribe(w.Open(), q, 8)
				ms := msgs("m", 200)
				w.publish(b, q, ms[:100]...)
				w.expectInOrder(s, names(ms[:100]...))
				w.publish(b, q, ms[100:]...)
				w.expectInOrder(s, names(ms[100:]...))
			},
		},
		{
			Area: "order", Name: "many publishers and many consumers lose and double nothing",
			Explain: "Without a fault every confirmed message is delivered exactly once, whichever goroutines publish and receive at the same time, as the first delivery.",
			Run: func(w *world) {
				const publishers, consumers, each = 6, 6, 60
				setup := w.Open()
				q := w.queue(setup, "crowd")
				seen := newTally()
				ctx, cancel := w.Ctx()
				defer cancel()
				var pubs, cons sync.WaitGroup
				for range consumers / 2 { // two goroutines share a subscription
					s := w.subscribe(w.Open(), q, 4)
					for range 2 {
						cons.Go(func() { w.consume(ctx, s, seen, publishers*each) })
					}
				}
				for p := range publishers {
					b := setup
					if p%2 == 0 {
						b = w.Open()
					}
					pubs.Go(func() {
						for i := range each {
							id := fmt.Sprintf("p%d-%d", p, i)
							if err := w.Clean(b.Publish(ctx, q, msg(id))); err != nil {
								w.Errorf("Publish(%s): %v", id, err)
								return
							}
						}
					})
				}
				pubs.Wait()
				cons.Wait()
				for p := range publishers {
					for i := range each {
						if n := seen.count(fmt.Sprintf("p%d-%d/0", p, i)); n != 1 {
							w.Errorf("p%d-%d was seen %d times, want once", p, i, n)
						}
					}
				}
				w.nothing(w.subscribe(setup, q, 0), "after every message was acknowledged")
			},
		},
		{
			Area: "order", Name: "a repeated pair is one message", Needs: []need{needsDedupe},
			Explain: "The pair (ID, Generation) names the message: a repeated pair is one message, so that a Publish of unknown outcome can be repeated.",
			Run: func(w *world) {
				b1, b2 := w.Open(), w.Open()
				q := w.queue(b1, "twice")
				w.publish(b1, q, msg("a"), msg("b"))
				w.publish(b2, q, msg("a"))
				w.publish(b1, q, msg("a"))
				s := w.subscribe(b1, q, 0)
				for n, count := range w.drain(s, "a/0", "b/0") {
					if count != 1 {
						w.Errorf("%s was seen %d times, want once", n, count)
					}
				}
			},
		},
		{
			Area: "order", Name: "the same ID of the next Generation is another message",
			Explain: "A retry is a new message with the same ID and the next Generation: it is not mistaken for the message that a consumer holds, and is counted from 1.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "generation")
				w.publish(b, q, msg("a"))
				s := w.subscribe(b, q, 0)
				d0 := w.receive(s)
				next := msg("a")
				next.Generation = 1
				w.publish(b, q, next)
				d1 := w.receive(s)
				if d1.Message().Generation != 1 {
					w.Errorf("received %s, want a/1", name(d1.Message()))
				}
				w.wantFirst(d1, "the next generation")
				w.ack(d0)
				w.ack(d1)
				w.nothing(s, "after both generations were acknowledged")
			},
		},
		{
			Area: "order", Name: "one connection serves many at once",
			Explain: "All methods may be called from any goroutine: concurrent publishes, subscriptions and settlements over one Broker do not disturb each other.",
			Run: func(w *world) {
				b := w.Open()
				ctx, cancel := w.Ctx()
				defer cancel()
				var wg sync.WaitGroup
				for i := range 8 {
					q := w.queue(b, fmt.Sprintf("lane-%d", i))
					wg.Go(func() {
						s, err := b.Subscribe(ctx, q, broker.SubscribeOptions{Prefetch: 2, Lease: w.h.Leases})
						if w.Clean(err) != nil {
							w.Errorf("Subscribe: %v", err)
							return
						}
						for k := range 20 {
							want := fmt.Sprintf("lane-%d-%d", i, k)
							err := b.Publish(ctx, q, msg(want))
							var d broker.Delivery
							if err == nil {
								d, err = s.Receive(ctx)
							}
							if err == nil && d.Message().ID != want {
								err = fmt.Errorf("received %s", name(d.Message()))
							}
							if err == nil {
								err = d.Ack(ctx)
							}
							if w.Clean(err) != nil {
								w.Errorf("%s: %v", want, err)
								return
							}
						}
						if err := w.Clean(s.Close(ctx)); err != nil {
							w.Errorf("Subscription.Close: %v", err)
						}
					})
				}
				wg.Wait()
			},
		},
	}
}

// expectInOrder receives and acknowledges the named messages, and expects this order. Another
// message fails the case at once.
func (w *world) expectInOrder(s broker.Subscription, want []string) {
	w.Helper()
	for i, n := range want {
		d := w.receive(s)
		if got := name(d.Message()); got != n {
			w.Fatalf("message %d is %s, want %s", i, got, n)
		}
		w.ack(d)
	}
}

// tally counts the messages that several consumers see.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
	done chan struct{} // closed when enough different messages were seen
}

// newTally returns a tally of no messages.
func newTally() *tally { return &tally{seen: make(map[string]int), done: make(chan struct{})} }

// add counts the message with the name n. It closes done when enough different messages were seen.
// It takes t.mu.
func (t *tally) add(n string, enough int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen[n]++
	if t.seen[n] == 1 && len(t.seen) == enough {
		close(t.done)
	}
}

// count returns how often the message with the name n was seen. It takes t.mu.
func (t *tally) count(n string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen[n]
}

// consume receives, counts in seen, and acknowledges, until all consumers together have seen enough
// different messages. An error of Receive before that fails the case and ends the loop. An error of
// Ack fails the case unless a lost connection explains it, see transient.
func (w *world) consume(ctx context.Context, s broker.Subscription, seen *tally, enough int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-seen.done:
		case <-ctx.Done():
		}
	}()
	for {
		d, err := s.Receive(ctx)
		if w.Clean(err) != nil {
			select {
			case <-seen.done:
			default:
				w.Errorf("Receive: %v", err)
			}
			return
		}
		// Counted before the Ack: the last message ends the other consumers, and an Ack without effect
		// shows as a second delivery.
		seen.add(name(d.Message()), enough)
		settle, stop := w.Ctx()
		if err := w.Clean(d.Ack(settle)); err != nil && !transient(err) {
			w.Errorf("Ack(%s): %v", name(d.Message()), err)
		}
		stop()
	}
}

// transient reports whether err may be the result of a lost connection.
func transient(err error) bool {
	return errors.Is(err, broker.ErrLeaseLost) || errors.Is(err, broker.ErrUnavailable) || errors.Is(err, broker.ErrIndeterminate)
}
