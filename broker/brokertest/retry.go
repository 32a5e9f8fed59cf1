package brokertest

import (
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/suite"
)

// retryCases returns the cases of Replace and Retrier.
func retryCases() []testCase {
	next := func(id string) *broker.Message {
		m := msg(id)
		m.Generation = 1
		m.Body = []byte("the next of " + id)
		return m
	}
	return []testCase{
		{
			Area: "retry", Name: "the successor takes the place of the delivery",
			Explain: "Replace publishes the successor and removes the delivery: the next Generation is delivered for the first time, and the old one never again.",
			Run: func(w *world) {
				b := w.Open()
				q, q2 := w.queue(b, "from"), w.queue(b, "to")
				w.publish(b, q, msg("same"), msg("other"))
				s, s2 := w.subscribe(b, q, 0), w.subscribe(b, q2, 0)
				for range 2 {
					d := w.receive(s)
					id, to := d.Message().ID, q
					if id == "other" {
						to = q2
					}
					ctx, cancel := w.Ctx()
					w.Must(broker.Replace(ctx, b, d, broker.Outgoing{Queue: to, Message: next(id)}), "Replace")
					w.WantIs(d.Ack(ctx), broker.ErrSettled, "Ack after Replace")
					cancel()
					from := s
					if to == q2 {
						from = s2
					}
					d = w.receiveID(from, id)
					if diff := diffMessage(next(id), d.Message()); diff != "" {
						w.Errorf("the successor is not what was published (-sent +received):\n%s", diff)
					}
					w.wantFirst(d, "the successor")
					w.ack(d)
				}
				w.nothing(s, "after the successors were acknowledged")
				w.nothing(s2, "after the successors were acknowledged")
			},
		},
		{
			Area: "retry", Name: "a delayed successor", Needs: []need{needsDelays},
			Explain: "A successor may have a time, and is not delivered before it.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "later")
				w.publish(b, q, msg("a"))
				s := w.subscribe(b, q, 0)
				d := w.receive(s)
				at := time.Now().Add(300 * time.Millisecond)
				ctx, cancel := w.Ctx()
				defer cancel()
				w.Must(broker.Replace(ctx, b, d, broker.Outgoing{Queue: q, Message: next("a"), At: at}), "Replace")
				d = w.receive(s)
				w.onTime(at, "a successor in 300ms")
				if d.Message().Generation != 1 {
					w.Errorf("received %s, want a/1", name(d.Message()))
				}
				w.ack(d)
				w.nothing(s, "after Ack")
			},
		},
		{
			Area: "retry", Name: "both or neither: the delivery is settled", Needs: []need{needsRetry},
			Explain: "Retry does both steps or neither: of a settled delivery it is ErrSettled and the successor is not published.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "settled")
				w.publish(b, q, msg("a"))
				s := w.subscribe(b, q, 0)
				d := w.receive(s)
				w.ack(d)
				ctx, cancel := w.Ctx()
				defer cancel()
				w.WantIs(broker.Replace(ctx, b, d, broker.Outgoing{Queue: q, Message: next("a")}), broker.ErrSettled, "Retry after Ack")
				w.nothing(s, "after a Retry that failed")
			},
		},
		{
			Area: "retry", Name: "both or neither: the delivery is lost", Needs: []need{needsRetry, needsSever, needsLoss},
			Explain: "Retry does both steps or neither: of a lost delivery it is ErrLeaseLost, the successor is not published, and the message is delivered again.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "lost")
				w.publish(b, q, msg("a"))
				s := w.subscribe(b, q, 0)
				d := w.receive(s)
				w.h.Sever(w.TB, b)
				suite.Ends(w.World, d.Lost(), "Lost after the connection was cut")
				ctx, cancel := w.Ctx()
				defer cancel()
				w.WantIs(broker.Replace(ctx, b, d, broker.Outgoing{Queue: q, Message: next("a")}), broker.ErrLeaseLost, "Retry of a lost delivery")
				w.drain(s, "a/0")
			},
		},
		{
			Area: "retry", Name: "the successor's queue is missing", Needs: []need{needsQueues},
			Explain: "When the successor cannot be published the delivery stays: it can be settled as before.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "missing")
				w.publish(b, q, msg("a"))
				s := w.subscribe(b, q, 0)
				d := w.receive(s)
				ctx, cancel := w.Ctx()
				defer cancel()
				err := broker.Replace(ctx, b, d, broker.Outgoing{Queue: w.h.Prefix + "nowhere", Message: next("a")})
				w.WantIs(err, broker.ErrNoQueue, "Replace into a queue that does not exist")
				w.Must(d.Release(ctx, 0), "Release after Replace failed")
				w.drain(s, "a/0")
			},
		},
	}
}

// receiveID receives until the message with the id arrives, returns its delivery, and releases the
// others.
func (w *world) receiveID(s broker.Subscription, id string) broker.Delivery {
	w.Helper()
	var others []broker.Delivery
	d := w.receive(s)
	for d.Message().ID != id {
		others = append(others, d)
		d = w.receive(s)
	}
	ctx, cancel := w.Ctx()
	defer cancel()
	for _, o := range others {
		w.Must(o.Release(ctx, 0), "Release")
	}
	return d
}
