package scheduletest

import (
	"math/rand/v2"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
)

// dueCases tests Store.Due.
func dueCases() []testCase {
	return []testCase{
		{
			// Promises: W10.
			Area: "due", Name: "in the order of time",
			Explain: "Due returns the longest overdue ticks first, at most max of them, and changes nothing.",
			Run: func(w *world) {
				s := w.Open()
				now := w.now(s)
				entries := make([]schedule.Entry, 50)
				for i := range entries {
					entries[i] = w.entry(now.Add(time.Duration(i-100) * time.Second))
				}
				mixed := make([]schedule.Entry, 0, len(entries))
				for _, i := range rand.Perm(len(entries)) {
					mixed = append(mixed, entries[i])
				}
				w.add(s, mixed...)
				for _, most := range []int{1, 7, 50, 100} {
					ticks := w.due(w.Open(), most).Ticks
					if len(ticks) != min(most, len(entries)) {
						w.Fatalf("Due(%d) gave %d", most, len(ticks))
					}
					for i, k := range ticks {
						if k.ID != entries[i].ID {
							w.Fatalf("Due(%d): the one at place %d is not the one that is due since %v", most, i, entries[i].Next)
						}
					}
				}
			},
		},
		{
			// Promises: W24.
			Area: "due", Name: "equal times",
			Explain: "Entries with the same due time are all due, and each is claimed separately.",
			Run: func(w *world) {
				s := w.Open()
				at := w.now(s).Add(-time.Second)
				w.add(s, w.entry(at), w.entry(at), w.entry(at))
				for want := 3; want > 0; want-- {
					ticks := w.due(s, 10).Ticks
					if len(ticks) != want {
						w.Fatalf("%d are due, want %d", len(ticks), want)
					}
					w.claim(s, "a", long, ticks[0], time.Time{})
				}
				w.wantNone(s, "after three claims")
			},
		},
		{
			// Promises: W18, W19, W25.
			Area: "due", Name: "never early",
			Explain: "A tick is due at its instant on the store's clock, not earlier and not much later.",
			Run: func(w *world) {
				s := w.Open()
				e := w.entry(w.now(s).Add(300 * time.Millisecond))
				w.add(s, e)
				k := w.waitDue(s, e.ID)
				if now := w.now(s); k.Due.After(now) {
					w.Errorf("the tick of %v was due at %v", k.Due, now)
				}
				w.wantDue(k, e.Next, "a tick that was waited for")
			},
		},
		{
			Area: "due", Name: "what comes next",
			Explain: "Batch.Next is the next time at which an entry becomes due or a lease ends, so that an idle listener can sleep.",
			Run: func(w *world) {
				s := w.Open()
				if b := w.due(s, 10); !b.Next.IsZero() || len(b.Ticks) > 0 {
					w.Errorf("an empty schedule has something at %v", b.Next)
				}
				soon, late := w.entry(w.now(s).Add(time.Hour)), w.entry(w.now(s).Add(2*time.Hour))
				w.add(s, late, soon)
				for _, most := range []int{0, 10} {
					if b := w.due(s, most); b.Next.UnixMilli() != soon.Next.UnixMilli() {
						w.Errorf("Due(%d): next at %v, want %v", most, b.Next, soon.Next)
					}
				}
				e := w.overdue(s)
				if b := w.due(s, 10); b.Next.UnixMilli() != soon.Next.UnixMilli() || len(b.Ticks) != 1 {
					w.Errorf("beside one that is due: next at %v, want %v", b.Next, soon.Next)
				}
				w.claim(s, "a", time.Minute, w.wantOne(s, e.ID), time.Time{})
				if b := w.due(s, 10); b.Next.Before(b.Now) || b.Next.After(b.Now.Add(time.Minute)) {
					w.Errorf("a claim of a minute runs out at %v, it is %v", b.Next, b.Now)
				}
			},
		},
		{
			// Promises: W36.
			Area: "due", Name: "one clock",
			Explain: "All processes get the time of the same clock, and it advances.",
			Run: func(w *world) {
				a, b := w.Open(), w.Open()
				first := w.now(a)
				between := w.now(b)
				if d := between.Sub(first); d < 0 || d > w.Patience {
					w.Errorf("one store's clock says %v, and then another's %v", first, between)
				}
				w.Until("the clock to go on", func() bool { return w.now(a).After(between) })
				if n := len(w.due(a, 0).Ticks); n != 0 {
					w.Errorf("Due(0) gave %d ticks", n)
				}
				w.overdue(a)
				if n := len(w.due(a, 0).Ticks); n != 0 {
					w.Errorf("Due(0) gave %d ticks", n)
				}
			},
		},
	}
}
