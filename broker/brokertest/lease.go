package brokertest

import (
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/suite"
)

// leaseCases returns the cases of lost deliveries and of leases.
func leaseCases() []testCase {
	cs := []testCase{
		{
			Area: "lease", Name: "a cut connection", Needs: []need{needsSever, needsLoss},
			Explain: "When the connection is lost its deliveries are lost: Lost is closed, the message is delivered again with a higher count, and the subscription continues by itself.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "cut")
				ms := msgs("m", 3)
				w.publish(b, q, ms...)
				s := w.subscribe(b, q, 0)
				ds := w.receiveN(s, 3)
				w.h.Sever(w.TB, b)
				for _, d := range ds {
					suite.Ends(w.World, d.Lost(), "Lost after the connection was cut")
				}
				for range ds {
					d := w.receive(s)
					switch n, exact := d.Deliveries(); {
					case w.h.Promises.ExactCount && (n != 2 || !exact):
						w.Errorf("Deliveries() = %d, %v after a cut connection; want 2, true", n, exact)
					case n < 2 && !w.h.Promises.Uncounted:
						w.Errorf("Deliveries() = %d, %v after a cut connection; want at least 2", n, exact)
					}
					select {
					case <-d.Lost():
						w.Error("Lost of the new delivery is closed")
					default:
					}
					w.ack(d)
				}
				w.nothing(s, "after all were acknowledged")
			},
		},
		{
			Area: "lease", Name: "to another process", Needs: []need{needsSever, needsLoss},
			Explain: "A message of a lost connection is delivered to one waiting consumer, once, although the old consumer continues.",
			Run: func(w *world) {
				b1, b2 := w.Open(), w.Open()
				q := w.queue(b1, "other")
				w.publish(b1, q, msg("a"))
				s1 := w.subscribe(b1, q, 1)
				d := w.receive(s1)
				s2 := w.subscribe(b2, q, 1)
				w.closeSub(s1)
				w.h.Sever(w.TB, b1)
				suite.Ends(w.World, d.Lost(), "Lost after the connection was cut")
				w.drain(s2, "a/0")
			},
		},
		{
			Area: "lease", Name: "a neighbour's cut connection", Needs: []need{needsSever, needsLoss},
			Explain: "The loss of a connection affects only its own deliveries: those of another Broker can still be settled.",
			Run: func(w *world) {
				b1, b2 := w.Open(), w.Open()
				q := w.queue(b1, "neighbour")
				w.publish(b1, q, msgs("m", 2)...)
				d1 := w.receive(w.subscribe(b1, q, 1))
				s2 := w.subscribe(b2, q, 1)
				d2 := w.receive(s2)
				w.h.Sever(w.TB, b1)
				suite.Ends(w.World, d1.Lost(), "Lost after the connection was cut")
				select {
				case <-d2.Lost():
					w.Error("Lost of another connection's delivery is closed")
				default:
				}
				w.ack(d2)
			},
		},
		{
			Area: "lease", Name: "a delivery outlives the cut",
			Needs: []need{needsSever, func(h *Harness) string {
				return suite.Unless(h.Promises.Outlives, "the adapter does not promise Outlives")
			}},
			Explain: "The adapter promises that a delivery ends with its lease and not with its connection: after a cut it is still held, by the same consumer only, and can be settled.",
			Run: func(w *world) {
				b, rival := w.Open(), w.Open()
				q := w.queue(b, "outlives")
				w.publish(b, q, msg("a"))
				d := w.receive(w.subscribe(b, q, 1))
				w.h.Sever(w.TB, b)
				w.nothing(w.subscribe(rival, q, 1), "the only message is held through a connection that was cut")
				select {
				case <-d.Lost():
					w.Error("Lost is closed though the lease goes on")
				default:
				}
				w.Until("Ack after the cut", func() bool {
					ctx, cancel := w.Ctx()
					defer cancel()
					err := w.Clean(d.Ack(ctx))
					if err != nil && !transient(err) {
						w.Fatalf("Ack after the cut: %v", err)
					}
					return err == nil
				})
			},
		},
		{
			Area: "lease", Name: "a waiting Receive outlives the cut", Needs: []need{needsSever},
			Explain: "A Subscription outlives lost connections: a waiting Receive continues to wait and returns a later message.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "wait")
				s := w.subscribe(b, q, 1)
				got := w.receivers(s, 1)
				for range 3 {
					w.h.Sever(w.TB, b)
				}
				w.publish(w.Open(), q, msg("a"))
				d := suite.Ends(w.World, got, "Receive")
				ctx, cancel := w.Ctx()
				defer cancel()
				// The message may have been fetched just before the end of the connection was noticed.
				if err := w.Clean(d.Ack(ctx)); err != nil {
					w.WantIs(err, broker.ErrLeaseLost, "Ack")
					w.ack(w.receive(s))
				}
			},
		},
		{
			Area: "lease", Name: "Publish after the cut", Needs: []need{needsSever},
			Explain: "The adapter restores lost connections: Publish works again without help. In between it is ErrUnavailable or ErrIndeterminate.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "publish")
				for i := range 3 {
					w.publish(b, q, msg(fmt.Sprintf("before-%d", i)))
					w.h.Sever(w.TB, b)
					w.publishSurely(b, q, msg(fmt.Sprintf("after-%d", i)))
				}
				w.drainAll(w.subscribe(w.Open(), q, 0), "before-0/0", "after-0/0", "before-1/0", "after-1/0", "before-2/0", "after-2/0")
			},
		},
		{
			Area: "lease", Name: "held messages keep their lease", Needs: []need{needsLeases},
			Explain: "The adapter renews the lease of all messages that it holds until they are settled: a handler may take longer than the lease.",
			Run: func(w *world) {
				b, rival := w.Open(), w.Open()
				q := w.queue(b, "renew")
				w.publish(b, q, msgs("m", 2)...)
				s := w.subscribe(b, q, 2)
				d := w.receive(s) // the other message may be held too, without being delivered
				rivals := w.receivers(w.subscribe(rival, q, 2), 1)
				deadline := time.NewTimer(2*w.h.Leases + w.Quiet)
				defer deadline.Stop()
				select {
				case left := <-rivals:
					if n, _ := left.Deliveries(); left.Message().ID == d.Message().ID || n > 1 {
						w.Fatalf("%s was handed out again, hand-out %d, while its lease should have been renewed", name(left.Message()), n)
					}
					w.ack(left)
					<-deadline.C
				case <-d.Lost():
					w.Fatal("the lease of a held delivery was not renewed")
				case <-deadline.C:
					w.ack(w.receive(s))
				}
				select {
				case <-d.Lost():
					w.Fatal("the lease of a held delivery was not renewed")
				default:
				}
				w.ack(d)
			},
		},
	}
	for _, late := range settlements() {
		cs = append(cs, testCase{
			Area: "lease", Name: late.name + " of a lost delivery", Needs: []need{needsSever, needsLoss},
			Explain: "A settlement after the broker took the message back is ErrLeaseLost and has no effect: the message is delivered again.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "late")
				w.publish(b, q, msg("a"))
				s := w.subscribe(b, q, 1)
				d := w.receive(s)
				w.h.Sever(w.TB, b)
				suite.Ends(w.World, d.Lost(), "Lost after the connection was cut")
				w.WantIs(late.do(w, d), broker.ErrLeaseLost, "%s of a lost delivery", late.name)
				w.drain(s, "a/0")
			},
		})
	}
	return cs
}

// publishSurely publishes the same pair until the broker confirms it, as a producer would. An error
// that no lost connection explains fails the case at once, see transient.
func (w *world) publishSurely(b broker.Broker, queue string, m *broker.Message) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Until("Publish of "+name(m), func() bool {
		again := *m
		err := w.Clean(b.Publish(ctx, queue, &again))
		if err != nil && !transient(err) {
			w.Fatalf("Publish after a lost connection: got error %v, want ErrUnavailable or ErrIndeterminate", err)
		}
		return err == nil
	})
}
