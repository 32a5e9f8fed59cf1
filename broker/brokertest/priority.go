package brokertest

import (
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

// priorityCases returns the cases of priority levels.
func priorityCases() []testCase {
	return []testCase{
		{
			Area: "priority", Name: "the most urgent first", Needs: []need{needsPriorities},
			Explain: "Of a queue declared with levels the most urgent message is delivered first. With Prefetch 1 at most the message that was fetched already comes before a more urgent one.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "levels", 10, 100, 1000)
				var ms []*broker.Message
				for i := range 8 {
					for _, p := range []int{500, 100, 0} {
						m := msg(fmt.Sprintf("p%d-%d", p, i))
						m.Priority = p
						ms = append(ms, m)
					}
				}
				w.publish(b, q, ms...)
				s := w.subscribe(w.Open(), q, 1)
				// The promise is about messages that the broker can deliver. The delivering node of a cluster
				// may learn of a message a moment after other nodes have confirmed it.
				if _, counts := capability.As[broker.Inspector](b); counts {
					w.holds(b, q, len(ms))
				}
				highest := 0 // received so far, without the first message
				for i := range ms {
					d := w.receive(s)
					// A server whose leader changes while a message is on its way delivers it again
					// after its lease. Nothing promises a place to such a message.
					p := d.Message().Priority
					switch n, _ := d.Deliveries(); {
					case n > 1 || i == 0:
					case p < highest:
						w.Errorf("message %d has priority %d and comes after one of %d", i, p, highest)
					default:
						highest = p
					}
					w.ack(d)
				}
				w.nothing(s, "after all")
			},
		},
		{
			Area: "priority", Name: "an urgent message overtakes a backlog", Needs: []need{needsPriorities},
			Explain: "An urgent message that arrives later is delivered before the waiting ones, except for messages that were fetched already.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "overtake", 10, 100)
				w.publish(b, q, msgs("slow", 10)...)
				s := w.subscribe(w.Open(), q, 1)
				d := w.receive(s)
				m := msg("urgent")
				m.Priority = 5
				w.publish(b, q, m)
				// a cluster may deliver a moment later than it confirms
				if _, counts := capability.As[broker.Inspector](b); counts {
					w.holds(b, q, 11)
				}
				w.ack(d)
				for i := range 2 {
					d = w.receive(s)
					w.ack(d)
					if d.Message().ID == "urgent" {
						return
					}
					if i == 1 {
						w.Errorf("the urgent message was not among the next two")
					}
				}
			},
		},
		{
			Area: "priority", Name: "a level is up to its bound", Needs: []need{needsPriorities, needsOrder},
			Explain: "A message of priority p goes to the first level whose bound is at least p; a level keeps the order of arrival.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "bounds", 10, 100)
				for _, p := range []int{100, 11, 50, 10, 0, 10} {
					m := msg(fmt.Sprintf("p%d-%d", p, w.next()))
					m.Priority = p
					w.publish(b, q, m)
				}
				s := w.subscribe(b, q, 1)
				first := w.receive(s) // it may have been fetched before the urgent messages arrived
				ctx, cancel := w.Ctx()
				defer cancel()
				w.Must(first.Release(ctx, 0), "Release")
				var high, low []string
				for range 6 {
					d := w.receive(s)
					if d.Message().Priority <= 10 {
						high = append(high, d.Message().ID)
					} else {
						low = append(low, d.Message().ID)
					}
					w.ack(d)
				}
				// The released message may have lost its place. The others of its level keep their order of
				// arrival.
				checkAscending(w, "priorities up to 10", without(high, first.Message().ID))
				checkAscending(w, "priorities 11 to 100", without(low, first.Message().ID))
				if len(high) != 3 || len(low) != 3 {
					w.Errorf("received %v and %v, want three of each level", high, low)
				}
			},
		},
		{
			Area: "priority", Name: "a queue without levels takes every priority",
			Explain: "A queue has one level unless declared with more: a message of any priority is accepted, stored and delivered.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "flat")
				var want []string
				for _, p := range []int{0, 1, 100, 255, 1 << 20} {
					m := msg(fmt.Sprintf("p%d", p))
					m.Priority = p
					w.publish(b, q, m)
					want = append(want, name(m))
				}
				s := w.subscribe(b, q, 0)
				got := map[string]int{}
				for range want {
					d := w.receive(s)
					got[d.Message().ID] = d.Message().Priority
					w.ack(d)
				}
				for id, p := range got {
					if fmt.Sprintf("p%d", p) != id {
						w.Errorf("%s arrived with priority %d", id, p)
					}
				}
				if len(got) != len(want) {
					w.Errorf("received %v, want %v", got, want)
				}
			},
		},
	}
}

// next returns 0 at the first call in a case, then 1, 2 and so on. It takes w.mu.
func (w *world) next() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counter++
	return w.counter - 1
}

// without returns ids without the given id.
func without(ids []string, id string) []string {
	var rest []string
	for _, s := range ids {
		if s != id {
			rest = append(rest, s)
		}
	}
	return rest
}

// checkAscending expects that the numbers in ids ascend. An id has the form pPRIORITY-NUMBER.
func checkAscending(w *world, what string, ids []string) {
	w.Helper()
	last := -1
	for _, id := range ids {
		var p, n int
		if _, err := fmt.Sscanf(id, "p%d-%d", &p, &n); err != nil {
			w.Fatalf("id %q: %v", id, err)
		}
		if n < last {
			w.Errorf("%s came in the order %v", what, ids)
			return
		}
		last = n
	}
}
