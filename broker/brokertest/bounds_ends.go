package brokertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/suite"
)

// boundEnd is a way in which a delivery ends.
type boundEnd struct {
	name string
	// do ends the only delivery of a key and returns the id of the next message of the key
	do    func(w *world, b broker.Broker, queue string, d broker.Delivery) (next string)
	needs []need
}

// boundEnds returns the ends of a delivery. The key has the messages a-0, which is delivered, and
// a-1.
func boundEnds() []boundEnd {
	ended := func(call func(w *world, d broker.Delivery) error, next string) func(*world, broker.Broker, string, broker.Delivery) string {
		return func(w *world, _ broker.Broker, _ string, d broker.Delivery) string {
			w.Must(call(w, d), "the end of the delivery")
			return next
		}
	}
	release := func(after time.Duration) func(w *world, d broker.Delivery) error {
		return func(w *world, d broker.Delivery) error {
			ctx, cancel := w.Ctx()
			defer cancel()
			return d.Release(ctx, after)
		}
	}
	return []boundEnd{
		{name: "an acknowledgement", do: ended(func(w *world, d broker.Delivery) error {
			ctx, cancel := w.Ctx()
			defer cancel()
			return d.Ack(ctx)
		}, "a-1")},
		{name: "an acknowledgement that waits", do: ended(func(w *world, d broker.Delivery) error {
			ctx, cancel := w.Ctx()
			defer cancel()
			return broker.AckSync(ctx, d)
		}, "a-1")},
		{name: "a release", do: ended(release(0), "a-0")},
		{name: "a release for an hour", do: ended(release(time.Hour), "a-1"), needs: []need{needsDelays}},
		{name: "a dead letter", do: ended(func(w *world, d broker.Delivery) error {
			ctx, cancel := w.Ctx()
			defer cancel()
			return d.DeadLetter(ctx, broker.Dead{Reason: "why"})
		}, "a-1")},
		{name: "a retry", needs: []need{needsRetry, needsDelays}, do: func(w *world, b broker.Broker, queue string, d broker.Delivery) string {
			next := *d.Message()
			next.Generation++
			ctx, cancel := w.Ctx()
			defer cancel()
			w.Must(broker.Replace(ctx, b, d, broker.Outgoing{Queue: queue, Message: &next, At: time.Now().Add(time.Hour)}), "Retry")
			return "a-1"
		}},
		{name: "a closed Broker", do: func(w *world, b broker.Broker, _ string, _ broker.Delivery) string {
			w.closeBroker(b)
			return "a-0"
		}},
		{name: "a lost connection", needs: []need{needsIsolate}, do: func(w *world, b broker.Broker, _ string, _ broker.Delivery) string {
			w.Cleanup(w.h.Isolate(w.TB, b))
			return "a-0"
		}},
	}
}

// boundEndCases returns the cases that each end of a delivery gives its place back.
func boundEndCases() []testCase {
	var cs []testCase
	for _, end := range boundEnds() {
		cs = append(cs, testCase{
			Area: "bounds", Name: "the place after " + end.name, Needs: append([]need{needsClaimBounds}, end.needs...),
			Explain: "However a delivery ends, a waiting consumer gets the next message of its key, and of its queue.",
			Run: func(w *world) {
				for i, bounds := range []broker.Bounds{{Key: broker.Bound{Max: 1}}, {All: broker.Bound{Max: 1}}} {
					b, other := w.Open(), w.Open()
					q := w.fairQueue(other, []string{"endkey", "endall"}[i])
					w.publishAll(other, q, series("a", 0, 2))
					first := w.subscribeBounds(b, q, 1, bounds)
					d := w.receive(first)
					w.closeSub(first)
					s := w.subscribeBounds(other, q, 1, bounds)
					waits := w.receivers(s, 1)
					w.quietDeliveries(waits, "the key or queue is at its limit")
					want := end.do(w, b, q, d)
					if next := suite.Ends(w.World, waits, "Receive after "+end.name); next.Message().ID != want {
						w.Errorf("%s came next, want %s", name(next.Message()), want)
					}
				}
			},
		})
	}
	return append(cs, testCase{
		Area: "bounds", Name: "a removed backlog", Needs: []need{needsClaimBounds},
		Explain: "Messages of a key at its limit can be deleted and purged, and stay so. Later messages of the key are delivered when it has a place.",
		Run: func(w *world) {
			b := w.Open()
			q := w.fairQueue(b, "removed")
			w.publishAll(b, q, series("a", 0, 6))
			s := w.subscribeBounds(w.Open(), q, 8, broker.Bounds{Key: broker.Bound{Max: 1}})
			d := w.receive(s)
			w.nothing(s, "the key is at its limit")
			ctx, cancel := w.Ctx()
			defer cancel()
			want := 5
			if f, ok := capability.As[broker.Finder](b); ok {
				w.Must(f.Delete(ctx, q, "a-1"), "Delete")
				want--
			}
			if n, err := w.inspector(b).Purge(ctx, q); w.Clean(err) != nil || n != want {
				w.Errorf("Purge: %d, %v; want %d", n, err, want)
			}
			w.publishAll(b, q, series("a", 0, 8)[6:])
			w.nothing(s, "the key is still at its limit")
			w.ack(d)
			for _, id := range []string{"a-6", "a-7"} {
				d := w.receive(s)
				if d.Message().ID != id {
					w.Errorf("%s came next, want %s", name(d.Message()), id)
				}
				w.ack(d)
			}
			w.forgotten(b, q, "a drain")
		},
	}, testCase{
		Area: "bounds", Name: "no load is left behind", Needs: []need{needsClaimBounds},
		Explain: "When no message is left and the time of the rates has passed, the broker keeps nothing of the keys.",
		Run: func(w *world) {
			b := w.Open()
			q := w.fairQueue(b, "noload")
			var ms []*broker.Message
			for _, key := range []string{"a", "b", "c", ""} {
				ms = append(ms, series(key, 0, 10)...)
			}
			w.publishAll(b, q, ms)
			s := w.subscribeBounds(w.Open(), q, 4, broker.Bounds{
				Key: broker.Bound{Max: 2, Rate: 500, Per: time.Second}, All: broker.Bound{Max: 4, Rate: 500},
			})
			left := len(ms)
			for released := map[string]bool{}; left > 0; {
				d := w.receive(s)
				if id := d.Message().ID; number(id)%3 == 0 && !released[id] {
					released[id] = true
					ctx, cancel := w.Ctx()
					w.Must(d.Release(ctx, 0), "Release(%s)", id)
					cancel()
					continue
				}
				w.ack(d)
				left--
			}
			w.closeSub(s)
			w.forgotten(b, q, "a drain with bounds")
		},
	}, testCase{
		Area: "bounds", Name: "random bounds", Needs: []need{needsClaimBounds},
		Explain: "Whatever is published, settled, released, retried, purged and closed: never more than Max messages of a key or of the queue are held, and while a key and the queue have a free place the next message of the key is delivered.",
		Run:     randomBounds,
	})
}

// keyListCases returns the cases of broker.KeyLister.
func keyListCases() []testCase {
	return []testCase{
		{
			Area: "bounds", Name: "the keys of a queue", Needs: []need{needsListKeys},
			Explain: "ListKeys shows the keys with ready or held messages in the order of their bytes, by page, each once, with their numbers of messages. A queue that is not fair is ErrMalformed, a missing one ErrNoQueue.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "listkeys")
				want := map[string]int{"": 1, "a": 2, "a ": 1, "b": 3, "ü": 1, "z": 2}
				for key, n := range want {
					for range n {
						w.publish(b, q, keyed(fmt.Sprintf("m-%d", w.next()), key, 0))
					}
				}
				for _, limit := range []int{1, 2, 4, 6, 0} {
					states := w.keys(b, q, limit)
					got := map[string]int{}
					for _, s := range states {
						got[s.Key] = s.Ready
						if s.Held > 0 {
							w.Errorf("%d messages of %q are held, want none", s.Held, s.Key)
						}
					}
					wantKeyNumbers(w, got, want)
					if !slices.IsSortedFunc(states, func(x, y broker.KeyState) int { return compareKeys(x.Key, y.Key) }) {
						w.Errorf("the keys are not in order: %+v", states)
					}
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				_, err := broker.ListKeys(ctx, b, w.queue(b, "listplain"), "", 0)
				w.WantIs(err, broker.ErrMalformed, "ListKeys of a plain queue")
				_, err = broker.ListKeys(ctx, b, w.h.Prefix+"missing", "", 0)
				w.WantIs(err, broker.ErrNoQueue, "ListKeys of a missing queue")
			},
		},
		{
			Area: "bounds", Name: "the load of a key", Needs: []need{needsListKeys, needsClaimBounds},
			Explain: "Once a consumer has bounds, ListKeys counts the messages held of each key, and tells how far its rate and that of the queue are used.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "keyload")
				w.publishAll(b, q, slices.Concat(series("a", 0, 5), series("b", 0, 1)))
				bound := broker.Bound{Rate: 2, Per: time.Hour}
				s := w.subscribeBounds(w.Open(), q, 8, broker.Bounds{Key: bound, All: broker.Bound{Rate: 100, Per: time.Hour}})
				ds := w.receiveN(s, 3)
				w.Until("the keys show what is held", func() bool {
					states := w.keys(b, q, 0)
					return len(states) == 2 && states[0].Held == 2 && states[0].Ready == 3 && states[1].Held == 1 && states[1].Ready == 0
				})
				states := w.keys(b, q, 0)
				if free := bound.FreeAt(states[0].Used); time.Until(free) < 20*time.Minute || time.Until(free) > 40*time.Minute {
					w.Errorf("the key is free at %v, want about half an hour from now", free)
				}
				if free := bound.FreeAt(states[1].Used); time.Until(free) > 0 {
					w.Errorf("a key that has half its rate is free at %v", free)
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				page, err := broker.ListKeys(ctx, b, q, "", 0)
				if w.Must(err, "ListKeys"); time.Until(page.Used) < time.Minute {
					w.Errorf("the rate of the queue is used until %v, want 1.8 minutes from now", page.Used)
				}
				if at := states[0].Oldest; !at.IsZero() && time.Since(at) > w.Slack+time.Minute {
					w.Errorf("the oldest message waits since %v", at)
				}
				w.ack(ds...)
			},
		},
	}
}

// compareKeys compares two keys by their bytes.
func compareKeys(x, y string) int { return slices.Compare([]byte(x), []byte(y)) }

// keys returns the states of all keys of a queue, read in pages of limit.
func (w *world) keys(b broker.Broker, queue string, limit int) (all []broker.KeyState) {
	w.Helper()
	for cursor, pages := "", 0; ; pages++ {
		ctx, cancel := w.Ctx()
		p, err := broker.ListKeys(ctx, b, queue, cursor, limit)
		cancel()
		w.Must(err, "ListKeys(%q, %q, %d)", queue, cursor, limit)
		if limit > 0 && len(p.Keys) > limit || pages > 100 {
			w.Fatalf("page %d has %d keys, want %d at most", pages, len(p.Keys), limit)
		}
		all = append(all, p.Keys...)
		if cursor = p.Next; cursor == "" {
			return all
		}
	}
}

// wantKeyNumbers expects numbers by key.
func wantKeyNumbers(w *world, got, want map[string]int) {
	w.Helper()
	for key, n := range want {
		if got[key] != n {
			w.Errorf("the key %q has %d ready messages, want %d", key, got[key], n)
		}
	}
	if len(got) != len(want) {
		w.Errorf("%d keys, want %d", len(got), len(want))
	}
}
