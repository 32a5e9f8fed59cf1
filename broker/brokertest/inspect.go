package brokertest

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

// inspectCases returns the cases of Inspector.
func inspectCases() []testCase {
	return []testCase{
		{
			Area: "inspect", Name: "Stats", Needs: []need{needsInspect},
			Explain: "Stats returns how many messages of a queue wait, are held, are delayed, and are dead. -1 means that the broker cannot count them.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "stats")
				w.wantStats(b, q, broker.Stats{})
				w.publish(b, q, msgs("m", 5)...)
				w.wantStats(b, q, broker.Stats{Ready: 5})
				s := w.subscribe(b, q, 2)
				ds := w.receiveN(s, 2)
				w.wantStats(w.Open(), q, broker.Stats{Ready: 3, Held: 2})
				want := broker.Stats{Ready: 3, Held: 2}
				if w.h.Promises.Delays {
					w.publishAt(b, q, msg("later"), time.Now().Add(time.Hour))
					want.Delayed = 1
					w.wantStats(b, q, want)
				}
				w.closeSub(s)
				ctx, cancel := w.Ctx()
				defer cancel()
				w.Must(ds[0].DeadLetter(ctx, broker.Dead{Reason: "why"}), "DeadLetter")
				w.ack(ds[1])
				want.Held, want.Dead = 0, 1
				w.wantStats(b, q, want)
			},
		},
		{
			Area: "inspect", Name: "Purge", Needs: []need{needsInspect},
			Explain: "Purge removes the messages that wait in the queue and returns their number. Held, delayed and dead messages stay.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "purge")
				i := w.inspector(b)
				w.publish(b, q, msg("dead"))
				w.deadLetter(b, q, "why")
				w.publish(b, q, msg("held"))
				s := w.subscribe(b, q, 1)
				held := w.receive(s)
				at := time.Now()
				if w.h.Promises.Delays {
					at = at.Add(time.Second)
					w.publishAt(b, q, msg("later"), at)
				}
				w.publish(b, q, msgs("m", 7)...)
				w.wantStats(b, q, broker.Stats{Ready: 7, Held: 1, Delayed: delayed(w), Dead: 1})
				w.counts(func(ctx context.Context) (int, error) { return i.Purge(ctx, q) }, 7, "Purge")
				w.wantStats(b, q, broker.Stats{Held: 1, Delayed: delayed(w), Dead: 1})
				w.ack(held)
				if w.h.Promises.Delays {
					d := w.receive(s)
					w.onTime(at, "a delay of 1s")
					w.ack(d)
				}
				w.nothing(s, "after Purge")
				w.counts(func(ctx context.Context) (int, error) { return i.Purge(ctx, q) }, 0, "Purge of nothing")
			},
		},
		{
			Area: "inspect", Name: "a purged message can be published again", Needs: []need{needsInspect},
			Explain: "A purged message no longer exists: the same pair published later is a new message.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "again")
				w.publish(b, q, msgs("m", 3)...)
				w.wantStats(b, q, broker.Stats{Ready: 3})
				w.counts(func(ctx context.Context) (int, error) { return w.inspector(b).Purge(ctx, q) }, 3, "Purge")
				w.publish(b, q, msg("m-1"))
				w.drain(w.subscribe(b, q, 0), "m-1/0")
			},
		},
		{
			Area: "inspect", Name: "the oldest waiting message", Needs: []need{needsInspect, needsOldest},
			Explain: "Oldest is since when the message waits that has waited longest, whatever its level. It is exact to a second, and zero if none waits. Held and delayed messages do not count.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "oldest")
				oldest := func() time.Time {
					ctx, cancel := w.Ctx()
					defer cancel()
					st, err := w.inspector(b).Stats(ctx, q)
					w.Must(err, "Stats")
					return st.Oldest
				}
				if w.h.Promises.Delays {
					w.publishAt(b, q, msg("later"), time.Now().Add(time.Hour))
				}
				if at := oldest(); !at.IsZero() {
					w.Errorf("Oldest of an empty queue is %v", at)
				}
				begin := time.Now()
				w.publish(b, q, msg("first"))
				w.Until("Oldest is set", func() bool { return !oldest().IsZero() })
				first := oldest()
				if late := first.Sub(begin); late < -w.Slack || late > w.Slack {
					w.Errorf("Oldest is %v from the time of publishing", late)
				}
				w.Until("more than a second passes", func() bool { return time.Since(begin) > 1200*time.Millisecond })
				w.publish(b, q, msg("second"))
				if at := oldest(); !at.Equal(first) {
					w.Errorf("Oldest is %v with a younger message, want %v", at, first)
				}
				s := w.subscribe(b, q, 1)
				d := w.receiveID(s, "first")
				w.Until("Oldest is that of the second message", func() bool { return oldest().After(first) })
				w.ack(d)
				w.ack(w.receiveID(s, "second"))
				w.Until("Oldest of the empty queue is zero", func() bool { return oldest().IsZero() })
			},
		},
		{
			Area: "inspect", Name: "a missing queue is ErrNoQueue", Needs: []need{needsInspect, needsQueues},
			Explain: "Stats of a queue that does not exist is ErrNoQueue, and so is Purge; neither creates the queue.",
			Run: func(w *world) {
				b := w.Open()
				i := w.inspector(b)
				ctx, cancel := w.Ctx()
				defer cancel()
				for range 2 {
					_, err := i.Stats(ctx, w.h.Prefix+"missing")
					w.WantIs(err, broker.ErrNoQueue, "Stats of a queue that does not exist")
					_, err = i.Purge(ctx, w.h.Prefix+"missing")
					w.WantIs(err, broker.ErrNoQueue, "Purge of a queue that does not exist")
				}
			},
		},
	}
}

// delayed returns the number of messages that a case with one delayed message expects as delayed.
// That is 1, or 0 if the adapter promises no delays.
func delayed(w *world) int {
	if w.h.Promises.Delays {
		return 1
	}
	return 0
}

// inspector returns b as an Inspector. It fails the case at once if b is not an Inspector.
func (w *world) inspector(b broker.Broker) broker.Inspector {
	w.Helper()
	i, ok := capability.As[broker.Inspector](b)
	if !ok {
		w.Fatal("Inspect is promised and there is no broker.Inspector")
	}
	return i
}

// holds polls until Stats counts want messages that wait or are held. It does not wait for a broker
// that cannot count held messages (-1). It fails the case at once if the suite's patience ends
// first.
func (w *world) holds(b broker.Broker, queue string, want int) {
	w.Helper()
	i := w.inspector(b)
	ctx, cancel := w.Ctx()
	defer cancel()
	var last broker.Stats
	ok := w.Poll(func() bool {
		var err error
		last, err = i.Stats(ctx, queue)
		return w.Clean(err) == nil && (last.Held < 0 || last.Ready+last.Held == want)
	})
	if !ok {
		w.Fatalf("Stats(%q) = %+v; want %d messages", queue, last, want)
	}
}

// fetchedAll polls until the number of held messages stays the same for a while: a subscription has
// fetched all that it fetches before Receive is called. It does nothing for a broker that does not
// count them.
func (w *world) fetchedAll(b broker.Broker, queue string) {
	w.Helper()
	i, counts := capability.As[broker.Inspector](b)
	if !counts {
		return
	}
	ctx, cancel := w.Ctx()
	defer cancel()
	held, same := 0, 0
	ok := w.Poll(func() bool {
		st, err := i.Stats(ctx, queue)
		if w.Clean(err) != nil || st.Held != held {
			held, same = st.Held, 0
		}
		if same++; held == 0 {
			return same > 50 // it may not have begun, or fetches only in Receive
		}
		return same > 5
	})
	if !ok {
		w.Fatalf("Stats(%q): the number of held messages does not settle; the last is %d", queue, held)
	}
}

// wantStats polls until Stats returns the counters of want, because a server may count a moment
// late. A returned -1 is equal to any number; DeadDropped and Oldest are not compared. It fails the
// case at once if the suite's patience ends first.
func (w *world) wantStats(b broker.Broker, queue string, want broker.Stats) {
	w.Helper()
	i := w.inspector(b)
	ctx, cancel := w.Ctx()
	defer cancel()
	var last string
	ok := w.Poll(func() bool {
		s, err := i.Stats(ctx, queue)
		last = fmt.Sprintf("%+v, %v", s, err)
		same := func(got, want int) bool { return got == -1 || got == want }
		return w.Clean(err) == nil && same(s.Ready, want.Ready) && same(s.Held, want.Held) && same(s.Delayed, want.Delayed) && same(s.Dead, want.Dead)
	})
	if !ok {
		w.Fatalf("Stats(%q) = %s; want %+v", queue, last, want)
	}
}
