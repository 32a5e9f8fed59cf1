package eventstest

import (
	"context"
	"errors"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/task"
)

// retainFaultCases returns the cases of kept events and faults.
func retainFaultCases() []testCase {
	return []testCase{
		{
			Area: "retain", Name: "a severed connection",
			Explain: "A lost connection causes no gap in the stream and no duplicate: events kept meanwhile arrive when the connection is back.",
			Needs:   []need{needsRetain, needsSever},
			Run: func(w *world) {
				publisher, listener := w.retain(long()), w.retain(long())
				behind, idle := w.kept(listener), w.kept(listener)
				const faults = 3
				received := 0
				for range faults {
					w.send(publisher, 120)
					w.receive(behind) // the other events of its message, and fetched ones, wait
					received += len(w.upTo(idle, w.mark(publisher)))
					w.h.Sever(w.TB, listener)
					w.send(publisher, 120)
				}
				w.h.Sever(w.TB, publisher)
				w.sameAsFresh(publisher, behind, faults)
				w.sameAsFresh(publisher, idle, received)
			},
		},
		{
			Area: "retain", Name: "a restart",
			Explain: "A restart of the server causes no gap in the stream.",
			Needs:   []need{needsRetain, needsRestart},
			Run: func(w *world) {
				publisher, listener := w.retain(long()), w.retain(long())
				s := w.kept(listener)
				w.wantAll(s, w.send(publisher, 120), "before the restart")
				unread := w.kept(w.retain(long()))
				w.h.Restart(w.TB)
				w.send(publisher, 120)
				fresh := w.sameAsFresh(publisher, unread, 0)
				w.upTo(s, fresh[len(fresh)-1])
			},
		},
		{
			Area: "retain", Name: "without a server",
			Explain: "Without a server Publish returns as fast as with one, and Replay returns ErrUnavailable within its ctx. An open stream continues without a gap when the server is back.",
			Needs:   []need{needsRetain, needsDown},
			Run: func(w *world) {
				publisher := w.retain(long())
				s := w.kept(w.retain(long()))
				w.wantAll(s, w.send(publisher, 120), "before the fault")
				up := w.h.Down(w.TB)
				n := max(5*w.buffer, 20_000)
				w.quick(w.hammer(publisher, n), n)
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				_, err := suite.Offer[events.Retainer](w, w.retain(long())).Replay(ctx, events.Filter{}, time.Time{})
				cancel()
				if !errors.Is(w.Clean(err), events.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
					w.Errorf("Replay without a server: %v", err)
				}
				up()
				// Events published without a server may be lost. All events since hammer are of one task.
				end := w.mark(publisher)
				fresh := w.kept(publisher)
				want, got := w.upTo(fresh, end), w.upTo(s, end)
				if diff := cmp.Diff(taskIDs(want[120:]), taskIDs(got)); diff != "" {
					w.Errorf("the stream that was there differs from a fresh one (-fresh +there):\n%.4000s", diff)
				}
			},
		},
	}
}

// mark publishes events until one of them is kept, and returns the task of the first kept one.
// Events just after a fault may be lost.
func (w *world) mark(b events.EventBus) task.ID {
	w.Helper()
	s := w.kept(b)
	defer w.closeSub(s)
	sent := map[task.ID]bool{}
	deadline := time.Now().Add(w.Patience)
	sent[w.send(b, 1)[0].TaskID] = true
	for {
		ctx, cancel := context.WithTimeout(context.Background(), w.Quiet/2)
		e, err := s.Receive(ctx)
		cancel()
		switch {
		case err == nil && sent[e.TaskID]:
			return e.TaskID
		case err == nil:
			continue
		case time.Now().After(deadline):
			w.Fatalf("no event is kept any more: not within %v", w.Patience)
		}
		w.WantIs(err, context.DeadlineExceeded, "Receive")
		sent[w.send(b, 1)[0].TaskID] = true
	}
}

// sameAsFresh publishes a last event and reads s up to it. The reader of s has received some events
// before; received is their number. It expects that s has the same further events as a new stream.
// It returns the tasks of all events of the new stream.
func (w *world) sameAsFresh(b events.EventBus, s events.Subscription, received int) []task.ID {
	w.Helper()
	end := w.mark(b)
	want, got := taskIDs(w.upTo(w.kept(b), end)), taskIDs(w.upTo(s, end))
	if diff := cmp.Diff(want[min(received, len(want)):], got); diff != "" {
		w.Fatalf("the stream differs from one without a fault (-without +with):\n%.4000s", diff)
	}
	return want
}
