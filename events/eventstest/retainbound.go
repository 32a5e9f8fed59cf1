package eventstest

import (
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/events"
)

// usual returns an event of a usual size, about 500 bytes on the wire.
func (w *world) usual() events.Event {
	e := w.event()
	e.Type, e.Name, e.Queue, e.Args = events.TaskReceived, "email.send", "mail", strings.Repeat("x", 350)
	return e
}

// through publishes n events of a usual size and receives them from s at the same pace, so that
// none is dropped. It returns the events.
func (w *world) through(b events.EventBus, s events.Subscription, n int) []events.Event {
	w.Helper()
	all := make([]events.Event, 0, n)
	// below the Max of every case, because a bus may keep no more
	chunk := min(max(w.buffer/4, 1), 400)
	for len(all) < n {
		start := len(all)
		for range min(chunk, n-start) {
			e := w.usual()
			w.publish(b, e)
			all = append(all, e)
		}
		w.wantAll(s, all[start:], "a stream that is read at once")
	}
	return all
}

// retainBoundCases returns the cases of the limits of kept events.
func retainBoundCases() []testCase {
	needs := []need{needsRetain}
	return []testCase{
		{
			Area: "retain", Name: "for its age at least",
			Explain: "An event is kept at least for Age, even if others follow it.",
			Needs:   needs,
			Run: func(w *world) {
				const age = 20 * time.Second
				b := w.retain(events.Retention{Age: age})
				began := time.Now()
				all := w.send(b, 10)
				for range 3 {
					w.pass(700 * time.Millisecond)
					all = append(all, w.send(b, 10)...)
					s := w.kept(b)
					got := w.upTo(s, all[len(all)-1].TaskID)
					w.closeSub(s)
					took := time.Since(began)
					if diff := cmp.Diff(taskIDs(all), taskIDs(got)); diff != "" && took < age {
						w.Fatalf("after %v of %v (-published +kept):\n%s", took, age, diff)
					}
				}
			},
		},
		{
			Area: "retain", Name: "the newest at least",
			Explain: "At least the newest Max events are kept.",
			Needs:   needs,
			Run: func(w *world) {
				r := events.Retention{Age: time.Hour, Max: 700}
				b := w.retain(r)
				all := w.through(b, w.kept(b), 3*r.Max)
				got := w.upTo(w.kept(w.retain(r)), all[len(all)-1].TaskID)
				if len(got) < r.Max {
					w.Fatalf("%d of %d events are kept, want at least %d", len(got), len(all), r.Max)
				}
				if diff := cmp.Diff(taskIDs(all[len(all)-len(got):]), taskIDs(got)); diff != "" {
					w.Errorf("what is kept is not the newest (-want +kept):\n%s", diff)
				}
			},
		},
		{
			Area: "retain", Name: "not much more than the newest",
			Explain: "Not many more than Max events are kept, so that the memory of the server or the process is limited.",
			Needs:   needs,
			Run: func(w *world) {
				const times = 10
				r := events.Retention{Age: time.Hour, Max: 500}
				b := w.retain(r)
				all := w.through(b, w.kept(b), 3*times*r.Max)
				got := w.upTo(w.kept(b), all[len(all)-1].TaskID)
				if len(got) > times*r.Max {
					w.Errorf("%d of %d events are kept, with Max %d", len(got), len(all), r.Max)
				}
			},
		},
		{
			Area: "retain", Name: "a stream that is read late",
			Explain: "A listener slower than the publishers reads the kept events without a gap, and delays no other.",
			Needs:   needs,
			Run: func(w *world) {
				b := w.retain(long())
				late, quick := w.kept(w.retain(long())), w.kept(b)
				all := w.through(b, quick, 3*w.buffer)
				w.wantAll(late, all, "a stream that nobody read until now")
			},
		},
		{
			Area: "retain", Name: "Publish is quick",
			Explain: "Neither Publish nor a task waits until an event is kept, and kept events do not increase the memory of this process without limit.",
			Needs:   needs,
			Run: func(w *world) {
				b := w.retain(events.Retention{Age: time.Hour, Max: 1000})
				w.kept(b)
				const n = 30_000 // fills its buffers
				w.quick(w.hammer(b, n), n)
				before := heap()
				w.hammer(b, many)
				w.grown(before, "over many events")
			},
		},
	}
}
