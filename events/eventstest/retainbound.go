package eventstest

import (
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/events"
)

// usual is an event of a usual size, about 500 bytes on the wire.
func (w *world) usual() events.Event {
	e := w.event()
	e.Type, e.Name, e.Queue, e.Args = events.TaskReceived, "email.send", "mail", strings.Repeat("x", 350)
	return e
}

// through publishes n events of a usual size, no faster than s gets them, so that none is dropped on the way.
func (w *world) through(b events.EventBus, s events.Subscription, n int) []events.Event {
	w.Helper()
	all := make([]events.Event, 0, n)
	chunk := min(max(w.buffer/4, 1), 400) // below every Max of the cases, of which a bus may keep no more
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

func retainBoundCases() []testCase {
	needs := []need{needsRetain}
	return []testCase{
		{
			Area: "retain", Name: "for its age at least",
			Explain: "An event is kept for Age at least, also when others come after it.",
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
			Explain: "Max is how many of the newest events are kept at least.",
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
			Explain: "Much more than Max events are not kept, so that the memory of the server, or of the process, is bounded.",
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
			Explain: "There is no gap: a listener slower than the publishers reads on from what is kept, and costs nobody else anything.",
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
			Explain: "Neither Publish nor a task waits for an event to be kept, and what is kept does not grow this process without end.",
			Needs:   needs,
			Run: func(w *world) {
				b := w.retain(events.Retention{Age: time.Hour, Max: 1000})
				w.kept(b)
				const n = 50_000
				w.quick(w.hammer(b, n), n)
				before := heap()
				w.hammer(b, many)
				w.grown(before, "over many events")
			},
		},
	}
}
