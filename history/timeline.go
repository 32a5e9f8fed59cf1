package history

import (
	"cmp"
	"slices"
	"time"
)

// showDeliveries orders the entries of each attempt for readers. The timeline must be in the order
// of Entry.compare. In that order an attempt whose first consumer was killed is received twice, and
// then started twice.
func showDeliveries(timeline []Entry) {
	for len(timeline) > 0 {
		first := timeline[0]
		n := slices.IndexFunc(timeline, func(e Entry) bool {
			return e.Life != first.Life || e.Attempt != first.Attempt || e.Generation != first.Generation
		})
		if n < 0 {
			n = len(timeline)
		}
		showAttempt(timeline[:n])
		timeline = timeline[n:]
	}
}

// showAttempt puts the entries of one node together, in the order of their times. The node that
// began earlier comes first. Times of different nodes order only the nodes, since clocks differ.
// Entries of the submission stand first. Entries of nodes that have not received the task, such as
// a revocation, stand last.
func showAttempt(entries []Entry) {
	begun := make(map[string]time.Time) // by node
	for i := range entries {
		e := &entries[i]
		if at, ok := begun[e.Node]; e.Kind.ofConsumer() && (!ok || e.Time.Before(at)) {
			begun[e.Node] = e.Time
		}
	}
	place := func(e *Entry) (int, time.Time) {
		if e.Kind == KindSent {
			return 0, time.Time{}
		}
		if at, ok := begun[e.Node]; ok {
			return 1, at
		}
		return 2, time.Time{}
	}
	slices.SortStableFunc(entries, func(a, b Entry) int {
		one, begunA := place(&a)
		other, begunB := place(&b)
		c := cmp.Or(cmp.Compare(one, other), begunA.Compare(begunB))
		if c == 0 && one == 1 {
			c = cmp.Or(cmp.Compare(a.Node, b.Node), a.Time.Compare(b.Time))
		}
		return c
	})
}

// ofConsumer reports whether only a consumer that has the task sends such an event.
func (k Kind) ofConsumer() bool { return k == KindReceived || k == KindStarted || k == KindProgress }
