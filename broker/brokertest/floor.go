package brokertest

import (
	"fmt"
	"math"

	"github.com/swarmiji/swarmiji/broker"
)

// floorCases returns the cases of SubscribeOptions.Floor.
func floorCases() []testCase {
	return []testCase{
		{
			Area: "floor", Name: "a floor beyond 0 to 0.5",
			Explain: "Subscribe returns ErrMalformed for a Floor below 0, above 0.5 or that is not a number.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "badfloor")
				for _, bad := range []float64{-0.1, 0.6, math.NaN(), math.Inf(1)} {
					ctx, cancel := w.Ctx()
					_, err := b.Subscribe(ctx, q, broker.SubscribeOptions{Prefetch: 1, Floor: bad})
					cancel()
					w.WantIs(err, broker.ErrMalformed, "Subscribe with the floor %g", bad)
				}
			},
		},
		{
			Area: "floor", Name: "shares of levels", Needs: []need{needsFloor},
			Explain: "While all levels have messages, the share Floor of the deliveries comes from the less urgent levels, in equal parts. The messages held may be added.",
			Run:     func(w *world) { w.levelShares(w.queue(w.Open(), "floor", 10, 100, 1000), 0.2) },
		},
		{
			Area: "floor", Name: "shares of levels in a fair queue", Needs: []need{needsFloor, needsTurns},
			Explain: "A fair queue with levels has the same floor.",
			Run:     func(w *world) { w.levelShares(w.fairQueue(w.Open(), "floor", 10, 100, 1000), 0.2) },
		},
		{
			Area: "floor", Name: "shares of levels at a limit", Needs: []need{needsFloor, needsClaimBounds},
			Explain: "The most urgent level keeps its share while a bound allows fewer messages than the prefetch.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "floorlimit", 10, 100)
				for _, priority := range []int{5, 50} {
					w.publishAll(b, q, urgent(priority, 60))
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				s, err := w.Open().Subscribe(ctx, q, broker.SubscribeOptions{
					Prefetch: 20, Lease: w.h.Leases, Floor: 0.05, Bounds: broker.Bounds{All: broker.Bound{Max: 1}},
				})
				w.Must(err, "Subscribe(%q) with a floor and a bound", q)
				lower := 0
				for range 40 {
					d := w.receive(s)
					if d.Message().Priority == 50 {
						lower++
					}
					w.ack(d)
				}
				if lower < 1 || lower > 4 {
					w.Errorf("%d of 40 deliveries are of the less urgent level, want 2", lower)
				}
			},
		},
		{
			Area: "floor", Name: "an empty level costs nothing", Needs: []need{needsFloor},
			Explain: "The most urgent level without messages gets no share, and neither does a less urgent one: all deliveries come from the levels with messages, in order of urgency.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "onelevel", 10, 100, 1000)
				for _, priority := range []int{5, 50, 500} {
					w.publishAll(b, q, urgent(priority, 40))
					s := w.subscribeFloor(w.Open(), q, 4, 0.5)
					for range 40 {
						d := w.receive(s)
						if d.Message().Priority != priority {
							w.Errorf("%s was delivered, want priority %d", name(d.Message()), priority)
						}
						w.ack(d)
					}
					w.closeSub(s)
				}
			},
		},
	}
}

// levelShares publishes to the levels 10, 100 and 1000 of a queue, and expects the shares of a
// subscription with a floor.
func (w *world) levelShares(queue string, share float64) {
	w.Helper()
	const (
		each     = 300
		starts   = 250
		prefetch = 3
	)
	b := w.Open()
	for _, priority := range []int{5, 50, 500} {
		w.publishAll(b, queue, urgent(priority, each))
	}
	if w.h.Promises.Inspect {
		w.holds(b, queue, 3*each)
	}
	s := w.subscribeFloor(w.Open(), queue, prefetch, share)
	got := map[int]int{}
	for range starts {
		d := w.receive(s)
		got[d.Message().Priority]++
		w.ack(d)
	}
	lowest := int(share*starts) - prefetch
	if lower := got[50] + got[500]; lower < lowest || lower > lowest+8*prefetch {
		w.Errorf("%d of %d deliveries are of less urgent levels, want %d to %d; by priority: %v", lower, starts, lowest, lowest+8*prefetch, got)
	}
	for _, priority := range []int{50, 500} {
		if n := got[priority]; n < lowest/2-prefetch {
			w.Errorf("%d of %d deliveries have priority %d, want %d or more; by priority: %v", n, starts, priority, lowest/2-prefetch, got)
		}
	}
}

// urgent returns n messages of a priority, in turns of four keys.
func urgent(priority, n int) []*broker.Message {
	ms := make([]*broker.Message, n)
	for i := range ms {
		ms[i] = keyed(fmt.Sprintf("p%d-%d", priority, i), fmt.Sprint("key ", i%4), 1)
		ms[i].Priority = priority
	}
	return ms
}

// subscribeFloor opens a subscription with a floor. An error fails the case at once.
func (w *world) subscribeFloor(b broker.Broker, queue string, prefetch int, share float64) broker.Subscription {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	s, err := b.Subscribe(ctx, queue, broker.SubscribeOptions{Prefetch: prefetch, Lease: w.h.Leases, Floor: share})
	w.Must(err, "Subscribe(%q) with a floor", queue)
	return s
}
