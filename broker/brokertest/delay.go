package brokertest

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/suite"
)

// delayCases returns the cases of Delayer.
func delayCases() []testCase {
	return []testCase{
		{
			Area: "delay", Name: "1 ms, 300 ms and 2 s", Needs: []need{needsDelays},
			Explain: "A delayed message is delivered soon after its time and never before; a longer delay before it does not hold it back.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "delays")
				s := w.subscribe(w.Open(), q, 0)
				at := map[string]time.Time{}
				for _, after := range []time.Duration{2 * time.Second, 300 * time.Millisecond, time.Millisecond} {
					m := msg(after.String())
					at[m.ID] = time.Now().Add(after)
					w.publishAt(b, q, m, at[m.ID])
				}
				for range 3 {
					d := w.receive(s)
					w.onTime(at[d.Message().ID], "a delay of %s", d.Message().ID)
					w.wantFirst(d, "a message that has waited, which is no delivery")
					w.ack(d)
				}
				w.nothing(s, "after all")
			},
		},
		{
			Area: "delay", Name: "a process whose clock is wrong", Needs: []need{needsDelays},
			Explain: "A time that is reckoned from now, time.Now().Add(d), is d from now, whatever the clock of the process shows: with " +
				"PublishAt, PublishBatch and Retry. A time on the wall is that time.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "wrong")
				s := w.subscribe(b, q, 0)
				for name, ahead := range map[string]time.Duration{"ahead": 5 * time.Minute, "behind": -5 * time.Minute} {
					at := map[string]time.Time{}
					later := func(id string) time.Time {
						at[id] = time.Now().Add(300 * time.Millisecond)
						return suite.WrongClock(at[id], ahead)
					}
					w.publish(b, q, msg("retried-"+name))
					d := w.receive(s)
					next := msg("retried-" + name)
					next.Generation = 1
					ctx, cancel := w.Ctx()
					w.Must(broker.Replace(ctx, b, d, broker.Outgoing{Queue: q, Message: next, At: later(next.ID)}), "Replace")
					w.publishAt(b, q, msg("one-"+name), later("one-"+name))
					w.Must(broker.PublishBatch(ctx, b, []broker.Outgoing{
						{Queue: q, Message: msg("first-" + name), At: later("first-" + name)},
						{Queue: q, Message: msg("second-" + name), At: later("second-" + name)},
					}), "PublishBatch")
					at["wall-"+name] = time.Now().Add(400 * time.Millisecond).Round(0)
					w.publishAt(b, q, msg("wall-"+name), at["wall-"+name])
					cancel()
					for range at {
						d := w.receive(s)
						w.onTime(at[d.Message().ID], "%s: a delay on a clock that is %v ahead", d.Message().ID, ahead)
						w.ack(d)
					}
				}
				w.nothing(s, "after all")
			},
		},
		{
			Area: "delay", Name: "a time in the past means at once", Needs: []need{needsDelays},
			Explain: "A time in the past means at once, however long ago it is; the zero time too.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "past")
				now := time.Now()
				w.publishAt(b, q, msg("second"), now.Add(-time.Second))
				w.publishAt(b, q, msg("century"), now.AddDate(-100, 0, 0))
				w.publishAt(b, q, msg("zero"), time.Time{})
				w.drain(w.subscribe(b, q, 0), "second/0", "century/0", "zero/0")
			},
		},
		{
			Area: "delay", Name: "a time far away", Needs: []need{needsDelays},
			Explain: "A time years away is accepted, or refused with an error; it never overflows into the present.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "far")
				delayer, ok := capability.As[broker.Delayer](b)
				if !ok {
					w.Fatal("Delays are promised and there is no broker.Delayer")
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				for _, years := range []int{1, 50, 1000} {
					err := delayer.PublishAt(ctx, q, msg(fmt.Sprint(years)), time.Now().AddDate(years, 0, 0))
					if years == 1 {
						w.Must(err, "PublishAt in a year")
					}
				}
				w.nothing(w.subscribe(b, q, 0), "with only far delays")
			},
		},
		{
			Area: "delay", Name: "every field survives the wait", Needs: []need{needsDelays},
			Explain: "A delayed message arrives as it was published.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "fields")
				w.publishAt(b, q, fullMessage(), time.Now().Add(100*time.Millisecond))
				d := w.receive(w.subscribe(b, q, 1))
				if diff := cmpButExpires(fullMessage(), d.Message()); diff != "" {
					w.Errorf("the message changed while it waited (-sent +received):\n%s", diff)
				}
				w.ack(d)
			},
		},
		{
			Area: "delay", Name: "it outlives its publisher", Needs: []need{needsDelays},
			Explain: "A confirmed delayed message belongs to the broker: it is delivered although its publisher has closed.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "orphan")
				at := time.Now().Add(300 * time.Millisecond)
				w.publishAt(b, q, msg("a"), at)
				w.closeBroker(b)
				s := w.subscribe(w.Open(), q, 1)
				d := w.receive(s)
				w.onTime(at, "a delay of 300ms")
				w.ack(d)
			},
		},
		{
			Area: "delay", Name: "without a Delayer only what is due goes through",
			Explain: "broker.PublishAt gives a Broker that is not a Delayer only due messages; others are ErrUnsupported, never sent early.",
			Needs:   []need{func(h *Harness) string { return suite.Unless(!h.Promises.Delays, "the adapter promises Delays") }},
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "none")
				ctx, cancel := w.Ctx()
				defer cancel()
				err := broker.PublishAt(ctx, b, broker.Outgoing{Queue: q, Message: msg("later"), At: time.Now().Add(time.Hour)})
				w.WantIs(err, broker.ErrUnsupported, "PublishAt in an hour")
				w.Must(broker.PublishAt(ctx, b, broker.Outgoing{Queue: q, Message: msg("due"), At: time.Now().Add(-time.Hour)}), "PublishAt an hour ago")
				w.drain(w.subscribe(b, q, 0), "due/0")
			},
		},
	}
}

// publishAt publishes m for delivery at the given time. An error fails the case at once.
func (w *world) publishAt(b broker.Broker, queue string, m *broker.Message, at time.Time) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	d, ok := capability.As[broker.Delayer](b)
	if !ok {
		w.Fatal("Delays are promised and there is no broker.Delayer")
	}
	w.Must(d.PublishAt(ctx, queue, m, at), "PublishAt(%q, %q, %v)", queue, m.ID, at)
}

// cmpButExpires compares two messages like diffMessage, except that the expiry of got may be any
// time in the future. It returns a description of the difference, or "".
func cmpButExpires(want, got *broker.Message) string {
	if got.Expires.IsZero() || got.Expires.Before(time.Now()) {
		return fmt.Sprintf("Expires is %v, want about an hour from now", got.Expires)
	}
	w, g := *want, *got
	w.Expires, g.Expires = time.Time{}, time.Time{}
	return diffMessage(&w, &g)
}

// short returns a ctx that ends after 300 ms, well before the suite's patience.
func (w *world) short() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 300*time.Millisecond)
}
