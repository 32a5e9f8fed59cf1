package eventstest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/suite"
)

// faultCases returns the cases of faults of the server and the connection.
func faultCases() []testCase {
	return []testCase{
		{
			Area: "fault", Name: "a severed connection",
			Explain: "Bus and subscription survive a lost connection of the publisher or the listener. Events of that time are missed, and the caller need not act.",
			Needs:   []need{needsSever},
			Run: func(w *world) {
				publisher, listener := w.Open(), w.Open()
				s := w.all(listener)
				w.flows(publisher, s, "before any fault")
				for range 2 {
					w.h.Sever(w.TB, publisher)
					w.flows(publisher, s, "after the publisher's connection was severed")
					w.h.Sever(w.TB, listener)
					w.flows(publisher, s, "after the listener's connection was severed")
				}
				w.wantAll(s, w.send(publisher, 150), "after the faults, in order and once")
				w.nothing(s, "after each event came once")
			},
		},
		{
			Area: "fault", Name: "a restart",
			Explain: "Bus and subscription also survive a restart of the server.",
			Needs:   []need{needsRestart},
			Run: func(w *world) {
				publisher, listener := w.Open(), w.Open()
				s := w.all(listener)
				w.flows(publisher, s, "before the restart")
				w.h.Restart(w.TB)
				w.flows(publisher, s, "after the restart")
				w.wantAll(s, w.send(publisher, 150), "after the restart, in order and once")
			},
		},
		{
			Area: "fault", Name: "Publish without a server",
			Explain: "Publish never blocks or fails a task. Without a server it returns nil as fast as with one, and dropped events are counted. When the server is back events arrive again.",
			Needs:   []need{needsDown},
			Run: func(w *world) {
				publisher, listener := w.Open(), w.Open()
				s := w.all(listener)
				w.flows(publisher, s, "before the fault")
				c, ok := capability.As[events.DropCounter](publisher)
				if !ok {
					w.Fatalf("%T counts no dropped events", publisher)
				}
				up := w.h.Down(w.TB)
				before := heap()
				n := max(20*w.buffer, many)
				w.quick(w.hammer(publisher, n), n)
				w.grown(before, "without a server")
				w.Until("a count of what was dropped without a server", func() bool { return c.Dropped() > 0 })
				up()
				w.flows(publisher, s, "when the server is back")
			},
		},
		{
			Area: "fault", Name: "Close without a server",
			Explain: "Close returns when its ctx ends at the latest, with or without a server. It returns nil, ctx's error or ErrUnavailable.",
			Needs:   []need{needsDown},
			Run: func(w *world) {
				b := w.Open()
				w.flows(b, w.all(b), "before the fault")
				up := w.h.Down(w.TB)
				defer up()
				w.send(b, 500)
				const deadline = time.Second
				ctx, cancel := context.WithTimeout(context.Background(), deadline)
				defer cancel()
				began := time.Now()
				closed := make(chan error, 1)
				go func() { closed <- b.Close(ctx) }()
				err := w.Clean(suite.Ends(w.World, closed, "Close without a server"))
				if took := time.Since(began); took > deadline+w.Slack {
					w.Errorf("Close returned after %v, its ctx ended after %v", took, deadline)
				}
				if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, events.ErrUnavailable) {
					w.Errorf("Close: %v", err)
				}
			},
		},
	}
}

// Bench measures Publish without and with a listener, each as a subbenchmark of b; open makes its
// Harness.
func Bench(b *testing.B, open func(t testing.TB) *Harness) {
	b.Helper()
	for name, listen := range map[string]bool{"publish": false, "publish to a listener": true} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b, open(b))
			defer w.CloseAll()
			bus := w.Open()
			if listen {
				w.all(w.Open())
			}
			e := full(events.TaskSent)
			e.Fields = nil
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if err := bus.Publish(ctx, e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
