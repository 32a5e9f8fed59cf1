package brokertest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// settleCases returns the cases of Ack, AckSync, Release and DeadLetter.
func settleCases() []testCase {
	cs := []testCase{
		{
			Area: "settle", Name: "Ack removes the message",
			Explain: "Ack removes the message: no process receives it again, also after the connection has closed.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "ack")
				w.publish(b, q, msg("a"))
				w.ack(w.receive(w.subscribe(b, q, 1)))
				w.closeBroker(b)
				w.nothing(w.subscribe(w.Open(), q, 0), "after Ack")
			},
		},
		{
			Area: "settle", Name: "AckSync removes the message",
			Explain: "nil from AckSync means that the broker does not deliver the message again, whatever happens to the connection.",
			Needs:   []need{needsSyncAck},
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "acksync")
				w.publish(b, q, msg("a"))
				d := w.receive(w.subscribe(b, q, 1))
				ctx, cancel := w.Ctx()
				defer cancel()
				w.Must(broker.AckSync(ctx, d), "AckSync")
				w.WantIs(broker.AckSync(ctx, d), broker.ErrSettled, "a second AckSync")
				if w.h.Sever != nil {
					w.h.Sever(w.TB, b)
				}
				w.nothing(w.subscribe(w.Open(), q, 0), "after AckSync")
			},
		},
		{
			Area: "settle", Name: "Release gives the message back",
			Explain: "Release(0) returns the message, which is delivered again at once, with the same Generation; no other message appears.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "release")
				w.publish(b, q, msg("a"))
				s := w.subscribe(b, q, 1)
				d := w.receive(s)
				ctx, cancel := w.Ctx()
				defer cancel()
				w.Must(d.Release(ctx, 0), "Release")
				d = w.receive(s)
				if diff := diffMessage(msg("a"), d.Message()); diff != "" {
					w.Errorf("the message changed on its way back (-sent +received):\n%s", diff)
				}
				if n, _ := d.Deliveries(); n < 1 {
					w.Errorf("Deliveries() = %d after Release; want at least 1", n)
				}
				w.ack(d)
				w.nothing(s, "after Release and Ack")
			},
		},
		{
			Area: "settle", Name: "Release to another process",
			Explain: "A message that one consumer returns can be delivered to another.",
			Run: func(w *world) {
				b1, b2 := w.Open(), w.Open()
				q := w.queue(b1, "other")
				w.publish(b1, q, msg("a"))
				s1 := w.subscribe(b1, q, 1)
				d := w.receive(s1)
				w.closeSub(s1)
				ctx, cancel := w.Ctx()
				defer cancel()
				w.Must(d.Release(ctx, 0), "Release")
				w.drain(w.subscribe(b2, q, 1), "a/0")
			},
		},
		{
			Area: "settle", Name: "Deliveries counts exactly",
			Explain: "Deliveries returns how often this Generation was delivered: 1, 2, 3 after lost connections or releases that count.",
			Needs:   []need{needsExactCount},
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "count")
				w.publish(b, q, msg("a"))
				s := w.subscribe(b, q, 1)
				last := 0
				for i := range 4 {
					d := w.receive(s)
					n, exact := d.Deliveries()
					if !exact || n < last || n > i+1 {
						w.Fatalf("hand-out %d: Deliveries() = %d, %v; the one before gave %d", i+1, n, exact, last)
					}
					last = n
					if i == 3 {
						w.ack(d)
						return
					}
					ctx, cancel := w.Ctx()
					w.Must(d.Release(ctx, 0), "Release")
					cancel()
				}
			},
		},
		{
			Area: "settle", Name: "Release after some time",
			Explain: "Release returns the message, which is delivered again after the given time, never earlier. It may become a copy with the next Generation; then that is counted from 1.",
			Needs:   []need{needsDelays},
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "later")
				w.publish(b, q, msg("a"))
				s := w.subscribe(b, q, 0)
				ctx, cancel := w.Ctx()
				defer cancel()
				for _, after := range []time.Duration{time.Millisecond, 300 * time.Millisecond} {
					d := w.receive(s)
					before := d.Message().Generation
					at := time.Now().Add(after)
					w.Must(d.Release(ctx, after), "Release(%v)", after)
					d = w.receive(s)
					w.onTime(at, "a message released for %v", after)
					switch g := d.Message().Generation; {
					case g != before && g != before+1:
						w.Errorf("Generation went from %d to %d", before, g)
					case g == before+1:
						w.wantFirst(d, "a new Generation")
					}
					if !bytes.Equal(d.Message().Body, msg("a").Body) || d.Message().ID != "a" {
						w.Errorf("the message changed: %+v", d.Message())
					}
					w.Must(d.Release(ctx, 0), "Release")
				}
				w.ack(w.receive(s))
				w.nothing(s, "after Ack")
			},
		},
		{
			Area: "settle", Name: "DeadLetter takes the message away",
			Explain: "DeadLetter moves the message to the dead letters: no consumer of its queue receives it again.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "bury")
				w.publish(b, q, msg("a"))
				s := w.subscribe(b, q, 1)
				d := w.receive(s)
				ctx, cancel := w.Ctx()
				defer cancel()
				w.Must(d.DeadLetter(ctx, broker.Dead{Reason: "why"}), "DeadLetter")
				w.nothing(s, "after DeadLetter")
				w.nothing(w.subscribe(w.Open(), q, 1), "after DeadLetter, in another process")
			},
		},
		{
			Area: "settle", Name: "of many at once one settles",
			Explain: "A delivery is settled exactly once: of concurrent settlements one succeeds and every other is ErrSettled.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "race")
				w.publish(b, q, msg("a"))
				s := w.subscribe(b, q, 0)
				d := w.receive(s)
				ctx, cancel := w.Ctx()
				defer cancel()
				errs := make([]error, 8)
				var wg sync.WaitGroup
				for i := range errs {
					wg.Go(func() { errs[i] = d.Ack(ctx) })
				}
				wg.Wait()
				won := 0
				for _, err := range errs {
					if err == nil {
						won++
						continue
					}
					w.WantIs(err, broker.ErrSettled, "Ack beside a successful one")
				}
				if won != 1 {
					w.Errorf("%d of %d settlements succeeded, want 1", won, len(errs))
				}
				w.nothing(s, "after Ack")
			},
		},
		{
			Area: "settle", Name: "Lost stays open while the delivery is held",
			Explain: "Lost is closed when the broker took the message back, and not before: it ends the handler.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "lost")
				w.publish(b, q, msg("a"))
				s := w.subscribe(b, q, 0)
				d := w.receive(s)
				w.nothing(s, "while the only message is held")
				select {
				case <-d.Lost():
					w.Error("Lost was closed though nothing happened")
				default:
				}
				w.ack(d)
			},
		},
	}
	for _, first := range settlements()[:3] {
		cs = append(cs, testCase{
			Area: "settle", Name: "a second settlement after " + first.name,
			Explain: "A delivery is settled exactly once; a second settlement, of any kind, is ErrSettled and has no effect.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "second")
				for i, second := range settlements() {
					w.publish(b, q, msg(fmt.Sprint(i)))
					s := w.subscribe(b, q, 1)
					d := w.receive(s)
					w.Must(first.do(w, d), "%s", first.name)
					w.WantIs(second.do(w, d), broker.ErrSettled, "%s after %s", second.name, first.name)
					if first.name == "Release" {
						w.ack(w.receive(s))
					}
					w.nothing(s, "after %s and %s", first.name, second.name)
					w.closeSub(s)
				}
			},
		})
	}
	return cs
}

// settlement is one way to settle a delivery.
type settlement struct {
	name string
	do   func(w *world, d broker.Delivery) error
}

// settlements returns every way to settle a delivery: the three of the port, then their variants.
func settlements() []settlement {
	way := func(name string, do func(ctx context.Context, d broker.Delivery) error) settlement {
		return settlement{name, func(w *world, d broker.Delivery) error {
			ctx, cancel := w.Ctx()
			defer cancel()
			return do(ctx, d)
		}}
	}
	return []settlement{
		way("Ack", func(ctx context.Context, d broker.Delivery) error { return d.Ack(ctx) }),
		way("Release", func(ctx context.Context, d broker.Delivery) error { return d.Release(ctx, 0) }),
		way("DeadLetter", func(ctx context.Context, d broker.Delivery) error {
			return d.DeadLetter(ctx, broker.Dead{Reason: "why"})
		}),
		way("AckSync", broker.AckSync),
		way("Release later", func(ctx context.Context, d broker.Delivery) error { return d.Release(ctx, time.Hour) }),
	}
}

// onTime expects that the time at has come, not longer ago than Slack. format and args name the
// message in a failure.
func (w *world) onTime(at time.Time, format string, args ...any) {
	w.Helper()
	switch late := time.Since(at); {
	case late < 0:
		w.Errorf("%s came %v early", fmt.Sprintf(format, args...), -late)
	case late > w.Slack:
		w.Errorf("%s came %v late, the slack is %v", fmt.Sprintf(format, args...), late, w.Slack)
	}
}
