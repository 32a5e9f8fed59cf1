package brokertest

import (
	"context"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/suite"
)

// prefetchCases returns the cases of Prefetch, Resizer, Buffer and Receive.
func prefetchCases() []testCase {
	return []testCase{
		{
			Area: "prefetch", Name: "held and unsettled never exceed it",
			Explain: "Prefetch limits the unsettled messages that a subscription holds, however many goroutines receive; the rest is for others.",
			Run: func(w *world) {
				b1, b2 := w.Open(), w.Open()
				q := w.queue(b1, "bound")
				s1 := w.subscribe(b1, q, 3)
				w.publish(b1, q, msgs("m", 10)...)
				got := w.receivers(s1, 5)
				mine := []broker.Delivery{suite.Ends(w.World, got, "Receive"), suite.Ends(w.World, got, "Receive"), suite.Ends(w.World, got, "Receive")}
				w.quietDeliveries(got, "a fourth delivery with Prefetch 3")
				s2 := w.subscribe(b2, q, 7)
				w.ack(w.receiveN(s2, 7)...)
				w.nothing(s2, "the first subscription holds what is left")
				w.publish(b1, q, msg("next"))
				w.closeSub(s2)
				w.ack(mine[0])
				d := suite.Ends(w.World, got, "Receive after an Ack")
				if d.Message().ID != "next" {
					w.Errorf("received %s, want next/0", name(d.Message()))
				}
				w.ack(d, mine[1], mine[2])
			},
		},
		{
			Area: "prefetch", Name: "what is held and not handed out is told",
			Explain: "A Buffer lists the messages that its subscription holds and Receive has not returned yet, the next one first, at most its prefetch.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "buffer")
				// published before, because an adapter need not fetch messages one by one
				w.publish(b, q, msgs("m", 5)...)
				s := w.subscribe(b, q, 3)
				buffer, ok := capability.As[broker.Buffer](s)
				if !ok {
					return // it fetches nothing in advance, or cannot list it
				}
				w.Until("three messages are held", func() bool { return len(buffer.Buffered()) == 3 })
				next := buffer.Buffered()[0].ID
				d := w.receive(s)
				if d.Message().ID != next || len(buffer.Buffered()) != 2 {
					w.Errorf("%s was next, Receive returned %s, and %d are left", next, d.Message().ID, len(buffer.Buffered()))
				}
				w.ack(d)
				for range 4 {
					w.ack(w.receive(s))
				}
				w.Until("nothing is held", func() bool { return len(buffer.Buffered()) == 0 })
			},
		},
		{
			Area: "prefetch", Name: "0 is no limit",
			Explain: "Prefetch 0: a subscription may hold any number of messages. It goes on fetching as they are received, although none is settled.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "nolimit")
				w.publish(b, q, msgs("m", 300)...)
				s := w.subscribe(b, q, 0)
				w.fetchedAll(b, q)
				w.ack(w.receiveN(s, 300)...)
			},
		},
		{
			Area: "prefetch", Name: "a held message is returned though ctx is done",
			Explain: "A held message is returned even if ctx is done: a stopping consumer learns of every message that it must return.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "done")
				s := w.subscribe(b, q, 2)
				w.publish(b, q, msgs("m", 2)...)
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				n := 0
				w.Until("Receive of two messages with a ctx that is done", func() bool {
					d, err := s.Receive(ctx)
					if err != nil {
						w.WantIs(err, context.Canceled, "Receive with a canceled ctx")
						return false
					}
					w.ack(d)
					n++
					return n == 2
				})
			},
		},
		{
			Area: "prefetch", Name: "Receive returns the error of ctx",
			Explain: "Receive returns ctx's error when ctx ends first, and does not lose a message that arrives later.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "ctx")
				s := w.subscribe(b, q, 1)
				w.nothing(s, "an empty queue") // DeadlineExceeded
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				go func() { _, err := s.Receive(ctx); done <- w.Clean(err) }()
				cancel()
				w.WantIs(suite.Ends(w.World, done, "Receive"), context.Canceled, "Receive with a canceled ctx")
				w.publish(b, q, msg("a"))
				w.drain(s, "a/0")
			},
		},
		{
			Area: "prefetch", Name: "all levels share it", Needs: []need{needsPriorities, needsResize},
			Explain: "Prefetch is for all levels together, so that a consumer with as many running tasks holds no urgent one. A Divider that says that it is divided holds none after SetPrefetch(0).",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "shared", 10, 100)
				s := w.subscribe(b, q, 2)
				prefetch := 2
				if divider, ok := capability.As[broker.Divider](s); ok && divider.Divided() {
					prefetch = 0
					w.setPrefetch(s, 4) // 2 of each level
				}
				w.publish(b, q, msgs("m", 2)...)
				running := w.receiveN(s, 2)
				w.setPrefetch(s, prefetch)
				urgent := msg("urgent")
				urgent.Priority = 5
				w.publish(b, q, urgent)
				w.drain(w.subscribe(w.Open(), q, 1), "urgent/0")
				w.ack(running...)
			},
		},
		{
			Area: "prefetch", Name: "SetPrefetch grows it", Needs: []need{needsResize},
			Explain: "SetPrefetch changes the limit of unsettled messages at once: a waiting Receive continues.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "grow")
				s := w.subscribe(b, q, 1)
				w.publish(b, q, msgs("m", 5)...)
				got := w.receivers(s, 4)
				ds := []broker.Delivery{suite.Ends(w.World, got, "Receive")}
				w.quietDeliveries(got, "a second delivery with Prefetch 1")
				w.setPrefetch(s, 3)
				ds = append(ds, suite.Ends(w.World, got, "Receive"), suite.Ends(w.World, got, "Receive"))
				w.quietDeliveries(got, "a fourth delivery with Prefetch 3")
				w.ack(ds...)
				w.ack(suite.Ends(w.World, got, "Receive"), w.receive(s))
			},
		},
		{
			Area: "prefetch", Name: "SetPrefetch shrinks it", Needs: []need{needsResize},
			Explain: "Messages above a smaller Prefetch stay until they are settled; only then are more fetched.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "shrink")
				s := w.subscribe(b, q, 3)
				w.publish(b, q, msgs("m", 3)...)
				ds := w.receiveN(s, 3)
				w.setPrefetch(s, 1)
				w.publish(b, q, msgs("n", 3)...)
				w.ack(ds[0])
				w.nothing(s, "two unsettled with Prefetch 1")
				w.ack(ds[1])
				w.nothing(s, "one unsettled with Prefetch 1")
				w.ack(ds[2])
				d := w.receive(s)
				w.nothing(s, "one unsettled with Prefetch 1")
				w.ack(d)
				w.drain(s, "n-1/0", "n-2/0")
			},
		},
		{
			Area: "prefetch", Name: "SetPrefetch 0 stops the fetching", Needs: []need{needsResize},
			Explain: "SetPrefetch(0) stops the fetching: Receive returns the messages held and then waits, received messages can be settled, and another consumer gets the rest.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "stop")
				s := w.subscribe(b, q, 1)
				w.publish(b, q, msg("first"))
				d := w.receive(s)
				w.setPrefetch(s, 0)
				w.publish(b, q, msg("second"))
				w.ack(d)
				w.nothing(s, "with Prefetch 0")
				other := w.subscribe(w.Open(), q, 1)
				w.drain(other, "second/0")
				w.closeSub(other)
				w.publish(b, q, msg("third"))
				w.nothing(s, "with Prefetch 0")
				w.setPrefetch(s, 2)
				w.drain(s, "third/0")
			},
		},
	}
}

// setPrefetch sets the prefetch of s to n. An error fails the case at once.
func (w *world) setPrefetch(s broker.Subscription, n int) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	_, err := broker.SetPrefetch(ctx, s, n)
	w.Must(err, "SetPrefetch(%d)", n)
}

// receivers starts n goroutines that each receive one delivery of s, and returns the channel of the
// deliveries. They end with the case.
func (w *world) receivers(s broker.Subscription, n int) <-chan broker.Delivery {
	got := make(chan broker.Delivery, n)
	ctx, cancel := w.Ctx()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			d, err := s.Receive(ctx)
			if w.Clean(err) == nil {
				got <- d
			}
		})
	}
	w.Cleanup(func() { cancel(); wg.Wait() })
	return got
}

// quietDeliveries expects that no delivery arrives on got within Quiet, otherwise it fails the case
// at once. what names the delivery.
func (w *world) quietDeliveries(got <-chan broker.Delivery, what string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), w.Quiet)
	defer cancel()
	select {
	case d := <-got:
		w.Fatalf("%s: %s", what, name(d.Message()))
	case <-ctx.Done():
	}
}
