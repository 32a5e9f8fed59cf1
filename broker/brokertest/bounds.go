package brokertest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/suite"
)

// boundCases returns the cases of SubscribeOptions.Bounds.
func boundCases() []testCase {
	return slices.Concat([]testCase{
		{
			Area: "bounds", Name: "bounds are refused", Needs: []need{needsNoBounds},
			Explain: "A broker without bounds returns ErrUnsupported for a subscription with Bounds, and the error names the queue.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "unbound")
				for _, bounds := range someBounds() {
					err := w.subscribeError(b, q, bounds)
					w.WantIs(err, broker.ErrUnsupported, "Subscribe with %+v", bounds)
					if err != nil && !strings.Contains(err.Error(), q) {
						w.Errorf("the error does not name the queue: %v", err)
					}
				}
			},
		},
		{
			Area: "bounds", Name: "bounds that are not valid", Needs: []need{needsClaimBounds},
			Explain: "Subscribe and SetBounds return ErrMalformed for negative bounds, and for bounds of a queue that is not fair. Zero bounds of such a queue are no error.",
			Run: func(w *world) {
				b := w.Open()
				plain, fair := w.queue(b, "plain"), w.fairQueue(b, "fair")
				s, zero := w.subscribe(b, fair, 1), w.subscribe(b, plain, 1)
				negative := broker.Bounds{Key: broker.Bound{Max: -1}}
				w.WantIs(w.subscribeError(b, fair, negative), broker.ErrMalformed, "Subscribe with %+v", negative)
				w.WantIs(broker.SetBounds(s, negative), broker.ErrMalformed, "SetBounds(%+v)", negative)
				for _, bounds := range someBounds() {
					err := w.subscribeError(b, plain, bounds)
					w.WantIs(err, broker.ErrMalformed, "Subscribe to a plain queue with %+v", bounds)
					if err != nil && !strings.Contains(err.Error(), plain) {
						w.Errorf("the error does not name the queue: %v", err)
					}
					w.WantIs(broker.SetBounds(zero, bounds), broker.ErrMalformed, "SetBounds(%+v) on a plain queue", bounds)
				}
				w.Must(broker.SetBounds(zero, broker.Bounds{}), "SetBounds of nothing on a plain queue")
			},
		},
		{
			Area: "bounds", Name: "the messages held of each key", Needs: []need{needsClaimBounds},
			Explain: "Of each key at most Max messages are held, over all consumers. A place that is free again goes to the next message of the key.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "maxkey")
				w.publishAll(b, q, slices.Concat(series("a", 0, 9), series("b", 0, 9), series("", 0, 9)))
				bounds := broker.Bounds{Key: broker.Bound{Max: 2}}
				s1 := w.subscribeBounds(w.Open(), q, 20, bounds)
				first := w.receiveN(s1, 6)
				wantKeys(w, first, map[string]int{"a": 2, "b": 2, "": 2})
				s2 := w.subscribeBounds(w.Open(), q, 20, bounds)
				w.nothing(s2, "all keys are at their limit")
				w.closeSub(s1)
				for range 12 {
					key := first[0].Message().Key
					w.ack(first[0])
					d := w.receive(s2)
					if d.Message().Key != key {
						w.Errorf("after an acknowledgement of the key %q came %s", key, name(d.Message()))
					}
					w.wantFirst(d, "a message whose key was at its limit")
					first = append(first[1:], d)
				}
				w.ack(first...)
			},
		},
		{
			Area: "bounds", Name: "the messages held of a queue", Needs: []need{needsClaimBounds},
			Explain: "Of the whole queue at most All.Max messages are held, over all consumers.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "maxall")
				w.publishAll(b, q, slices.Concat(series("a", 0, 10), series("b", 0, 10)))
				bounds := broker.Bounds{All: broker.Bound{Max: 4}}
				s1, s2 := w.subscribeBounds(w.Open(), q, 3, bounds), w.subscribeBounds(w.Open(), q, 20, bounds)
				ds := w.receiveAny(4, s1, s2)
				w.nothing(s1, "the queue is at its limit")
				w.nothing(s2, "the queue is at its limit")
				for range 16 {
					w.ack(ds[0])
					ds = append(ds[1:], w.receiveAny(1, s1, s2)...)
				}
				w.ack(ds...)
			},
		},
		{
			Area: "bounds", Name: "one free place after another", Needs: []need{needsClaimBounds},
			Explain: "Each place of a key that becomes free goes to a waiting consumer, also when another consumer has just taken the place before.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "places")
				w.publishAll(b, q, series("a", 0, 5))
				bounds := broker.Bounds{Key: broker.Bound{Max: 2}}
				first := w.subscribeBounds(w.Open(), q, 2, bounds)
				ds := w.receiveN(first, 2)
				w.closeSub(first)
				s1, s2 := w.subscribeBounds(w.Open(), q, 1, bounds), w.subscribeBounds(w.Open(), q, 1, bounds)
				w.nothing(s1, "the key is at its limit")
				w.nothing(s2, "the key is at its limit")
				for _, d := range ds {
					w.ack(d)
					ds = append(ds, w.receiveAny(1, s1, s2)...)
				}
				w.ack(ds[2:]...)
			},
		},
		{
			Area: "bounds", Name: "bounds of single keys", Needs: []need{needsClaimBounds},
			Explain: "A Bound of Keys replaces Key for its key, also with more or without a limit. The messages of a key count over all priority levels.",
			Run: func(w *world) {
				b := w.Open()
				var levels []int
				if w.h.Promises.Priorities {
					levels = []int{10, 100}
				}
				q := w.fairQueue(b, "single", levels...)
				for _, key := range []string{"other", "more", "free"} {
					ms := series(key, 0, 6)
					for i := range ms {
						ms[i].Priority = []int{5, 50}[i%2]
					}
					w.publishAll(b, q, ms)
				}
				s := w.subscribeBounds(w.Open(), q, 50, broker.Bounds{
					Key: broker.Bound{Max: 1}, Keys: map[string]broker.Bound{"more": {Max: 3}, "free": {}},
				})
				ds := w.receiveN(s, 10)
				wantKeys(w, ds, map[string]int{"other": 1, "more": 3, "free": 6})
				w.nothing(s, "all keys are at their limit")
				w.ack(ds...)
			},
		},
		{
			Area: "bounds", Name: "a key at its limit delays no other", Needs: []need{needsClaimBounds},
			Explain: "The backlog of a key at its limit uses no place of a prefetch: all messages of another key are delivered.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "passed")
				w.publishAll(b, q, series("a", 0, 200))
				s := w.subscribeBounds(w.Open(), q, 2, broker.Bounds{Key: broker.Bound{Max: 1}})
				held := w.receive(s)
				w.publishAll(b, q, series("b", 0, 30))
				for range 30 {
					d := w.receive(s)
					if d.Message().Key != "b" {
						w.Fatalf("%s was delivered while its key is at its limit", name(d.Message()))
					}
					w.ack(d)
				}
				w.ack(held)
				w.ack(w.receive(s))
			},
		},
		{
			Area: "bounds", Name: "what is held already counts", Needs: []need{needsClaimBounds},
			Explain: "Messages that a consumer without bounds holds count for the consumers with bounds.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "before")
				w.publishAll(b, q, series("a", 0, 6))
				free := w.subscribe(w.Open(), q, 2)
				ds := w.receiveN(free, 2)
				w.closeSub(free)
				s := w.subscribeBounds(w.Open(), q, 10, broker.Bounds{Key: broker.Bound{Max: 2}})
				w.nothing(s, "two messages of the key are held")
				w.ack(ds[0])
				next := w.receive(s)
				w.nothing(s, "two messages of the key are held again")
				w.ack(ds[1], next)
				w.ack(w.receiveN(s, 2)...)
			},
		},
		{
			Area: "bounds", Name: "changed bounds", Needs: []need{needsClaimBounds},
			Explain: "SetBounds has an effect on the next message: more come at once, and after a lower limit none until enough are settled. Messages held stay.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "changed")
				w.publishAll(b, q, series("a", 0, 12))
				s := w.subscribeBounds(w.Open(), q, 20, broker.Bounds{Key: broker.Bound{Max: 1}})
				ds := w.receiveN(s, 1)
				w.nothing(s, "the key is at its limit")
				w.setBounds(s, broker.Bounds{Key: broker.Bound{Max: 4}})
				ds = append(ds, w.receiveN(s, 3)...)
				w.nothing(s, "the key is at its higher limit")
				w.setBounds(s, broker.Bounds{Keys: map[string]broker.Bound{"a": {Max: 2}}})
				w.ack(ds[:2]...)
				w.nothing(s, "the key is at its lower limit")
				w.ack(ds[2])
				ds = append(ds[3:], w.receive(s))
				w.nothing(s, "the key is at its lower limit")
				w.setBounds(s, broker.Bounds{})
				ds = append(ds, w.receiveN(s, 7)...)
				w.ack(ds...)
			},
		},
		{
			Area: "bounds", Name: "consumers with other bounds", Needs: []need{needsClaimBounds},
			Explain: "Each consumer takes messages by its own bounds, while the messages held count over all: the one with the higher limit is not held up by the other.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "others")
				low := w.subscribeBounds(w.Open(), q, 20, broker.Bounds{Key: broker.Bound{Max: 1}})
				waits := w.receivers(low, 1)
				w.publishAll(b, q, series("a", 0, 8))
				first := suite.Ends(w.World, waits, "Receive")
				high := w.subscribeBounds(w.Open(), q, 20, broker.Bounds{Key: broker.Bound{Max: 3}})
				ds := w.receiveN(high, 2)
				w.nothing(high, "the key is at the higher limit")
				w.nothing(low, "the key is above the lower limit")
				w.ack(first)
				ds = append(ds, w.receive(high))
				w.ack(ds...)
			},
		},
	}, rateCases(), boundEndCases(), keyListCases())
}

// rateCases returns the cases of Bound.Rate.
func rateCases() []testCase {
	return []testCase{
		{
			Area: "bounds", Name: "the rate of a key", Needs: []need{needsClaimBounds},
			Explain: "Rate messages of a key are taken at once, then no more until its time comes. Other keys have their own rate.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "ratekey")
				w.publishAll(b, q, slices.Concat(series("a", 0, 10), series("b", 0, 10), series("free", 0, 10)))
				s := w.subscribeBounds(w.Open(), q, 0, broker.Bounds{
					Key: broker.Bound{Rate: 3, Per: time.Hour}, Keys: map[string]broker.Bound{"free": {Max: 10}},
				})
				ds := w.receiveN(s, 16)
				wantKeys(w, ds, map[string]int{"a": 3, "b": 3, "free": 10})
				w.ack(ds...)
				w.nothing(s, "the rate of both keys is used")
			},
		},
		{
			Area: "bounds", Name: "the rate of a queue", Needs: []need{needsClaimBounds},
			Explain: "All.Rate messages of the queue are taken at once, then no more until its time comes, over all consumers.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "rateall")
				w.publishAll(b, q, slices.Concat(series("a", 0, 10), series("b", 0, 10)))
				bounds := broker.Bounds{All: broker.Bound{Rate: 4, Per: time.Hour}}
				s := w.subscribeBounds(w.Open(), q, 0, bounds)
				ds := w.receiveN(s, 4)
				wantKeys(w, ds, map[string]int{"a": 2, "b": 2})
				w.ack(ds...)
				w.nothing(s, "the rate of the queue is used")
				w.nothing(w.subscribeBounds(w.Open(), q, 0, bounds), "the rate of the queue is used")
			},
		},
		{
			Area: "bounds", Name: "a key comes back when its time comes", Needs: []need{needsClaimBounds},
			Explain: "A waiting consumer gets the messages of a key whose rate was used when their time comes, and not before: Rate at once, then one after each Per/Rate.",
			Run:     func(w *world) { w.wantRate(broker.Bounds{Key: broker.Bound{Rate: 2, Per: 200 * time.Millisecond}}) },
		},
		{
			Area: "bounds", Name: "a queue comes back when its time comes", Needs: []need{needsClaimBounds},
			Explain: "A waiting consumer gets the messages of a queue whose rate was used when their time comes, and not before.",
			Run:     func(w *world) { w.wantRate(broker.Bounds{All: broker.Bound{Rate: 2, Per: 200 * time.Millisecond}}) },
		},
	}
}

// wantRate receives nine messages of a key by bounds with two messages in 200 ms. None may come
// before its time.
func (w *world) wantRate(bounds broker.Bounds) {
	w.Helper()
	b := w.Open()
	q := w.fairQueue(b, "rate")
	w.publishAll(b, q, series("a", 0, 9))
	// The server's clock may run a little faster, and it may count in milliseconds.
	const tolerance = 5 * time.Millisecond
	began := time.Now()
	s := w.subscribeBounds(w.Open(), q, 0, bounds)
	for i := range 9 {
		w.ack(w.receive(s))
		if after, least := time.Since(began), time.Duration(i-1)*100*time.Millisecond-tolerance; after < least {
			w.Errorf("message %d came after %v, before its time %v", i, after, least)
		}
	}
}

// someBounds returns bounds that limit something.
func someBounds() []broker.Bounds {
	return []broker.Bounds{
		{Key: broker.Bound{Max: 1}}, {All: broker.Bound{Rate: 1}}, {Keys: map[string]broker.Bound{"a": {Max: 1}}},
	}
}

// subscribeBounds opens a subscription with bounds. An error fails the case at once.
func (w *world) subscribeBounds(b broker.Broker, queue string, prefetch int, bounds broker.Bounds) broker.Subscription {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	s, err := b.Subscribe(ctx, queue, broker.SubscribeOptions{Prefetch: prefetch, Lease: w.h.Leases, Bounds: bounds})
	w.Must(err, "Subscribe(%q) with %+v", queue, bounds)
	return s
}

// subscribeError returns the error of a Subscribe with bounds.
func (w *world) subscribeError(b broker.Broker, queue string, bounds broker.Bounds) error {
	ctx, cancel := w.Ctx()
	defer cancel()
	_, err := b.Subscribe(ctx, queue, broker.SubscribeOptions{Prefetch: 1, Lease: w.h.Leases, Bounds: bounds})
	return err
}

// setBounds changes the bounds of a subscription. An error fails the case at once.
func (w *world) setBounds(s broker.Subscription, bounds broker.Bounds) {
	w.Helper()
	r, ok := capability.As[broker.Bounder](s)
	if !ok {
		w.Fatal("Bounds is promised, and the subscription is no Bounder")
	}
	w.Must(r.SetBounds(bounds), "SetBounds(%+v)", bounds)
}

// receiveAny waits for n deliveries of any of the subscriptions.
func (w *world) receiveAny(n int, subs ...broker.Subscription) (ds []broker.Delivery) {
	w.Helper()
	for len(ds) < n {
		w.Until(fmt.Sprintf("delivery %d of %d", len(ds)+1, n), func() bool {
			for _, s := range subs {
				if d := w.receiveHeld(s); d != nil {
					ds = append(ds, d)
					return true
				}
			}
			return false
		})
	}
	return ds
}

// receiveHeld returns a delivery that the subscription holds already, or that it can get at once,
// or nil.
func (w *world) receiveHeld(s broker.Subscription) broker.Delivery {
	ctx, cancel := w.Ctx()
	cancel()
	d, err := s.Receive(ctx)
	if err != nil {
		return nil
	}
	return d
}

// wantKeys expects numbers of deliveries by key.
func wantKeys(w *world, ds []broker.Delivery, want map[string]int) {
	w.Helper()
	got := map[string]int{}
	for _, d := range ds {
		got[d.Message().Key]++
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.Errorf("the deliveries by key are %v, want %v", got, want)
	}
}
