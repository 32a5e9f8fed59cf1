package brokertest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

// turnCases returns the cases of exact turns over keys. They read with a prefetch of 1. So the
// consumer holds at most one message that it fetched before the last change of the queue.
func turnCases() []testCase {
	return []testCase{
		{
			Area: "fair", Name: "turns of two keys", Needs: []need{needsFair},
			Explain: "While two keys have ready messages, their deliveries differ by at most one turn and the message held. A key that comes later has no credit for the time before.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "turns")
				w.publishAll(b, q, series("a", 0, 80))
				s := w.subscribe(w.Open(), q, 1)
				for range 20 {
					w.ack(w.receive(s))
				}
				w.publishAll(b, q, series("b", 0, 30))
				w.wantTurns(s, 50, 2, "a", "b")
			},
		},
		{
			Area: "fair", Name: "shares of weights", Needs: []need{needsFair},
			Explain: "Keys of the weights 1, 2 and 5 with ready messages have deliveries in these shares, within 2 % over 10,000, and the messages held.",
			Run: func(w *world) {
				const prefetch = 8
				starts := w.h.FairStarts
				if starts == 0 {
					starts = 10_000
				}
				b := w.Open()
				q := w.fairQueue(b, "weights")
				weights := map[string]int{"one": 1, "two": 2, "five": 5}
				var ms []*broker.Message
				for key, weight := range weights {
					ms = append(ms, series(key, weight, starts*weight/8+starts/50+2*prefetch)...)
				}
				for chunk := range slices.Chunk(ms, 500) {
					w.publishAll(b, q, chunk)
				}
				s := w.subscribe(w.Open(), q, prefetch)
				got := map[string]int{}
				for range starts {
					d := w.receive(s)
					got[d.Message().Key]++
					w.ack(d)
				}
				for key, weight := range weights {
					want := float64(starts*weight) / 8
					if diff := math.Abs(float64(got[key]) - want); diff > want/50+float64(weight)+prefetch {
						w.Errorf("the key %q of weight %d had %d of %d deliveries, want about %.0f", key, weight, got[key], starts, want)
					}
				}
			},
		},
		{
			Area: "fair", Name: "in order within a key", Needs: []need{needsFair},
			Explain: "The messages of one key are delivered in the order of their publishes.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "keyorder")
				for i := range 40 {
					for _, key := range []string{"a", "b", ""} {
						w.publish(b, q, keyed(fmt.Sprintf("%s-%d", key, i), key, 1))
					}
				}
				s := w.subscribe(w.Open(), q, 8)
				next := map[string]int{}
				for range 120 {
					d := w.receive(s)
					m := d.Message()
					if want := fmt.Sprintf("%s-%d", m.Key, next[m.Key]); m.ID != want {
						w.Fatalf("%s was delivered, want %s", m.ID, want)
					}
					next[m.Key]++
					w.ack(d)
				}
			},
		},
		{
			Area: "fair", Name: "the level before the key", Needs: []need{needsFair, needsPriorities},
			Explain: "A message of a more urgent level is delivered before those of all keys in other levels, and each level has its own turns.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "levelkeys", 10, 100)
				w.publishAll(b, q, slices.Concat(series("a", 0, 12), series("b", 0, 12)))
				for _, key := range []string{"a", "b"} {
					for i := range 12 {
						m := keyed(fmt.Sprintf("urgent-%s-%d", key, i), key, 0)
						m.Priority = 5
						w.publish(b, q, m)
					}
				}
				s := w.subscribe(w.Open(), q, 1)
				late := 0
				turn := map[string]int{}
				for range 24 {
					d := w.receive(s)
					m := d.Message()
					if m.Priority != 5 {
						late++
					} else if turn[m.Key]++; turn["a"]-turn["b"] > 2 || turn["b"]-turn["a"] > 2 {
						w.Errorf("the urgent deliveries by key are %v", turn)
					}
					w.ack(d)
				}
				if late > 1 {
					w.Errorf("%d of the first 24 deliveries are not urgent", late)
				}
				w.wantTurns(s, 16, 3, "a", "b")
			},
		},
		{
			Area: "fair", Name: "a released message stands first in its key", Needs: []need{needsFair},
			Explain: "Messages that were released without a delay are delivered before the others of their key, and their turns are not lost.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "released")
				w.publishAll(b, q, series("a", 0, 16))
				first := w.subscribe(w.Open(), q, 8)
				held := w.receiveN(first, 8)
				w.closeSub(first)
				w.publishAll(b, q, series("b", 0, 16))
				ctx, cancel := w.Ctx()
				defer cancel()
				for _, d := range held {
					w.Must(d.Release(ctx, 0), "Release(%s)", name(d.Message()))
				}
				w.fetchedAll(b, q)
				s := w.subscribe(w.Open(), q, 1)
				var order []string
				got := map[string]int{}
				for i := range 16 {
					d := w.receive(s)
					if got[d.Message().Key]++; d.Message().Key == "a" {
						order = append(order, d.Message().ID)
					}
					if i == 7 && got["a"] < 3 { // a debt of eight turns would leave none for a
						w.Errorf("of the first 8 deliveries %v are by key: the released messages have lost their turns", got)
					}
					w.ack(d)
				}
				for i, id := range order {
					if back := number(id) < 8; back != (i < 8) {
						w.Errorf("the deliveries of the key are %v, want the first 8 messages first", order)
						break
					}
				}
			},
		},
		{
			Area: "fair", Name: "the turn of a released message is refunded", Needs: []need{needsFair},
			Explain: "A message that was released without a delay has used no turn: its key is as far behind as before the delivery, also for the next subscription of the same Broker.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "refund")
				w.publishAll(b, q, slices.Concat(series("a", 0, 20), series("b", 0, 20)))
				first := w.subscribe(b, q, 16)
				held := w.receiveN(first, 16)
				w.closeSub(first)
				ctx, cancel := w.Ctx()
				defer cancel()
				released := 0
				for _, d := range held {
					if d.Message().Key == "a" {
						released++
						w.Must(d.Release(ctx, 0), "Release(%s)", name(d.Message()))
					} else {
						w.Must(broker.AckSync(ctx, d), "AckSync(%s)", name(d.Message()))
					}
				}
				s := w.subscribe(b, q, 1)
				got := map[string]int{}
				for range released {
					d := w.receive(s)
					got[d.Message().Key]++
					w.ack(d)
				}
				if got["b"] > 2 { // a turn, and the message held
					w.Errorf("b was %d deliveries ahead, and of the next %d %v are by key", 16-released, released, got)
				}
			},
		},
		{
			Area: "fair", Name: "a delayed message takes its turn when due", Needs: []need{needsFair, needsDelays, needsInspect},
			Explain: "A delayed message takes a turn of its key from when it is due on: another key's backlog does not delay it.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "due")
				w.publishAll(b, q, series("a", 0, 40))
				w.publishAt(b, q, keyed("later", "b", 0), time.Now().Add(100*time.Millisecond))
				w.holds(b, q, 41)
				w.wantSoon(w.subscribe(w.Open(), q, 1), "later/0")
			},
		},
		{
			Area: "fair", Name: "a retried message takes its turn when due", Needs: []need{needsFair, needsRetry, needsDelays, needsInspect},
			Explain: "The next generation of a message keeps the key and takes a turn of it when it is due.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "again")
				w.publish(b, q, keyed("again", "b", 0))
				s := w.subscribe(b, q, 1) // a Broker retries its own deliveries
				d := w.receive(s)
				w.closeSub(s)
				w.publishAll(b, q, series("a", 0, 40))
				next := keyed("again", "b", 0)
				next.Generation = 1
				ctx, cancel := w.Ctx()
				defer cancel()
				w.Must(broker.Replace(ctx, b, d, broker.Outgoing{Queue: q, Message: next, At: time.Now().Add(100 * time.Millisecond)}), "Retry")
				w.holds(b, q, 41)
				w.wantSoon(w.subscribe(w.Open(), q, 1), "again/1")
			},
		},
		{
			Area: "fair", Name: "messages without a key share one", Needs: []need{needsFair},
			Explain: "Messages without a key have the key \"\", which takes turns with the others.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "keyless")
				w.publishAll(b, q, slices.Concat(msgs("m", 20), series("a", 0, 20)))
				w.wantTurns(w.subscribe(w.Open(), q, 1), 30, 2, "", "a")
			},
		},
		{
			Area: "fair", Name: "held messages in turns", Needs: []need{needsTurns},
			Explain: "Of the messages that a subscription holds Receive returns those of another key in turns, although the first ones are all of one key.",
			Run: func(w *world) {
				b := w.Open()
				q := w.fairQueue(b, "heldkeys")
				w.publishAll(b, q, series("a", 0, 20))
				s := w.subscribe(w.Open(), q, 40)
				w.ack(w.receive(s))
				w.fetchedAll(b, q)
				w.publishAll(b, q, series("b", 0, 6))
				if buffer, ok := capability.As[broker.Buffer](s); ok {
					w.Until("the subscription holds all messages", func() bool { return len(buffer.Buffered()) == 25 })
				}
				w.wantTurns(s, 10, 2, "a", "b")
			},
		},
		{
			Area: "fair", Name: "no key is left behind", Needs: []need{needsFair},
			Explain: "When no message is left, the broker keeps nothing of the keys, whether the messages were acknowledged, dead-lettered, deleted, delayed, retried, released or purged.",
			Run:     noKeyIsLeft,
		},
		{
			Area: "fair", Name: "random turns", Needs: []need{needsFair},
			Explain: "Whatever is published, settled, released, retried and purged: while two keys have ready messages, their deliveries, divided by the weights, differ by at most two turns and the message held; within a key they are in order; nothing is lost.",
			Run:     randomTurns,
		},
	}
}

// noKeyIsLeft is the case that the broker forgets keys without messages.
func noKeyIsLeft(w *world) {
	if w.h.Keys == nil {
		w.Fatal("Fair is promised, and the harness has no Keys")
	}
	b := w.Open()
	q := w.fairQueue(b, "forgotten")
	var ms []*broker.Message
	for i := range 60 {
		ms = append(ms, keyed(fmt.Sprintf("m-%d", i), fmt.Sprint("key ", i/2), i%5))
	}
	w.publishAll(b, q, ms)
	left := len(ms)
	ctx, cancel := w.Ctx()
	defer cancel()
	if f, ok := capability.As[broker.Finder](b); ok {
		for _, i := range []int{0, 1, 10, 21} {
			w.Must(f.Delete(ctx, q, ms[i].ID), "Delete(%s)", ms[i].ID)
			left--
		}
	}
	if w.h.Promises.Delays {
		w.publishAt(b, q, keyed("delayed", "of a delay", 3), time.Now().Add(50*time.Millisecond))
		left++
	}
	s := w.subscribe(b, q, 4)
	released, retried := map[string]bool{}, map[string]bool{}
	for i := 0; left > 0; i++ {
		d := w.receive(s)
		m := d.Message()
		switch {
		case i%7 == 3 && !released[m.ID]:
			released[m.ID] = true
			w.Must(d.Release(ctx, 0), "Release(%s)", name(m))
		case i%7 == 5 && !retried[m.ID]:
			retried[m.ID] = true
			next := *m
			next.Generation++
			w.Must(broker.Replace(ctx, b, d, broker.Outgoing{Queue: q, Message: &next}), "Replace(%s)", name(m))
		case i%7 == 6:
			w.Must(d.DeadLetter(ctx, broker.Dead{Reason: "why"}), "DeadLetter(%s)", name(m))
			left--
		default:
			w.ack(d)
			left--
		}
	}
	w.closeSub(s)
	w.forgotten(b, q, "a drain")
	if i, ok := capability.As[broker.Inspector](b); ok {
		w.publishAll(b, q, slices.Concat(series("a", 1, 5), series("b", 7, 5)))
		if n, err := i.Purge(ctx, q); w.Clean(err) != nil || n != 10 {
			w.Errorf("Purge: %d, %v; want 10", n, err)
		}
		w.forgotten(b, q, "a purge")
	}
}

// forgotten waits until the broker keeps no key of the queue.
func (w *world) forgotten(b broker.Broker, queue, after string) {
	w.Helper()
	last := -1
	if !w.Poll(func() bool { last = w.h.Keys(w.TB, b, queue); return last == 0 }) {
		w.Errorf("the broker keeps %d keys after %s", last, after)
	}
}

// wantTurns receives and acknowledges n messages. It expects that the deliveries of both keys never
// differ by more than most.
func (w *world) wantTurns(s broker.Subscription, n, most int, a, b string) {
	w.Helper()
	got := map[string]int{}
	var order []string
	for range n {
		d := w.receive(s)
		order = append(order, d.Message().ID)
		got[d.Message().Key]++
		w.ack(d)
		if diff := got[a] - got[b]; diff > most || diff < -most {
			w.Fatalf("the keys %q and %q differ by %d deliveries, at most %d are right; the order is %v", a, b, diff, most, order)
		}
	}
}

// wantSoon expects the message with a name among the first four deliveries: the one held, and two
// turns.
func (w *world) wantSoon(s broker.Subscription, want string) {
	w.Helper()
	var got []string
	for range 4 {
		d := w.receive(s)
		got = append(got, name(d.Message()))
		w.ack(d)
	}
	if !slices.Contains(got, want) {
		w.Errorf("the first deliveries are %v, want %s among them", got, want)
	}
}

// number returns the number at the end of an id.
func number(id string) (n int) {
	for _, c := range id {
		if n = n*10 + int(c-'0'); c < '0' || c > '9' {
			n = 0
		}
	}
	return n
}
