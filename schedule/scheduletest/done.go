package scheduletest

import (
	"time"

	"github.com/swarmiji/swarmiji/schedule"
)

// doneCases tests Store.Done.
func doneCases() []testCase {
	return []testCase{
		{
			// Promises: W23, W27.
			Area: "done", Name: "nothing is left of a one-shot",
			Explain: "The last run deletes the entry, so that it can be added again; an earlier run keeps it.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				k := w.wantOne(s, e.ID)
				w.claim(s, "a", long, k, time.Time{})
				w.finish(s, "a", schedule.Finish{Tick: k, Remove: true})
				if w.done(s, "a", schedule.Finish{Tick: k, Remove: true})[0] {
					w.Error("a claim was ended twice")
				}
				w.wantGone(s, e, "a one-shot after its run")
				e = w.overdue(s)
				k = w.wantOne(s, e.ID)
				w.claim(s, "a", long, k, time.Time{})
				w.finish(s, "a", schedule.Finish{Tick: k})
				w.wantExists(s, e, "an entry that is to be kept")
				w.wantNone(s, "an entry that was kept without a time")
			},
		},
		{
			Area: "done", Name: "an entry that has a time stays",
			Explain: "Finish.Remove deletes an entry only without a due time and without other claims: the tick of a dead owner needs the payload.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				first := w.wantOne(s, e.ID)
				w.claim(s, "a", long, first, w.now(s).Add(-10*time.Millisecond))
				second := w.wantOne(s, e.ID)
				w.finish(s, "a", schedule.Finish{Tick: first, Remove: true})
				w.wantExists(s, e, "an entry with a time")

				e = w.overdue(s)
				first = w.waitDue(s, e.ID)
				w.claim(s, "a", long, first, w.now(s).Add(-10*time.Millisecond))
				for _, k := range w.due(s, 10).Ticks {
					if k.ID == e.ID {
						second = k
					}
				}
				w.claim(s, "b", long, second, time.Time{})
				w.finish(s, "b", schedule.Finish{Tick: second, Remove: true})
				w.wantExists(s, e, "an entry of which another tick is claimed")
				w.finish(s, "a", schedule.Finish{Tick: first, Remove: true})
				w.wantGone(s, e, "an entry after its last claim")
			},
		},
		{
			Area: "done", Name: "what is carried",
			Explain: "The state of a run is stored for the next one, byte for byte; nil keeps the stored state, and an empty state deletes it.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				next := func(after string, state []byte) schedule.Tick {
					k := w.waitDue(s, e.ID)
					if string(k.State) != after {
						w.Errorf("the run was given %q, want %q", k.State, after)
					}
					w.claim(s, "a", long, k, w.now(s))
					w.finish(s, "a", schedule.Finish{Tick: k, State: state})
					return k
				}
				odd := "{\"n\":1}\x00\xff"
				next("", []byte(odd))
				next(odd, nil)
				next(odd, []byte("2"))
				next("2", []byte{})
				if k := next("", nil); k.State != nil {
					w.Errorf("no state came as %q", k.State)
				}
			},
		},
		{
			Area: "done", Name: "of another entry",
			Explain: "A run may store the state of another entry, as a run of RunNow does; if that entry does not exist, nothing is stored.",
			Run: func(w *world) {
				s := w.Open()
				e := w.entry(w.now(s).Add(400 * time.Millisecond))
				w.add(s, e)
				run := func(of string) {
					once := w.overdue(s)
					k := w.waitDue(s, once.ID)
					w.claim(s, "a", long, k, time.Time{})
					w.finish(s, "a", schedule.Finish{Tick: k, Remove: true, State: []byte("x"), StateOf: of})
				}
				run(e.ID)
				if k := w.waitDue(s, e.ID); string(k.State) != "x" {
					w.Errorf("the entry has %q", k.State)
				}
				w.remove(s, e.ID)
				run(e.ID)
				e.Next = w.now(s)
				w.add(s, e)
				if k := w.waitDue(s, e.ID); k.State != nil {
					w.Errorf("a new entry has %q of an older one", k.State)
				}
			},
		},
	}
}

// removeCases tests Store.Remove.
func removeCases() []testCase {
	return []testCase{
		{
			Area: "remove", Name: "all of it",
			Explain: "Remove deletes an entry with its due time and its state, whether it is due, paused or claimed.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				k := w.wantOne(s, e.ID)
				if !w.tryClaim(s, "a", long, schedule.Claim{Tick: k, Next: w.now(s), Remember: true})[0] {
					w.Fatal("not claimed")
				}
				w.finish(s, "a", schedule.Finish{Tick: k, State: []byte("x")})
				if !w.remove(w.Open(), e.ID) {
					w.Error("Remove says that there was none")
				}
				if w.remove(s, e.ID) || w.remove(s, "nobody") {
					w.Error("Remove says that there was one")
				}
				w.wantNone(s, "an entry that was removed")
				e.Next = w.now(s).Add(-time.Second)
				w.add(s, e)
				if k := w.wantOne(s, e.ID); k.State != nil || !k.Last.IsZero() {
					w.Errorf("the new entry has the state %q and the last tick %v of the old one", k.State, k.Last)
				}
			},
		},
		{
			Area: "remove", Name: "while it is run",
			Explain: "Ending the run of a removed entry must not add the entry again, and must not remove an entry that was added since.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				k := w.wantOne(s, e.ID)
				w.claim(s, "a", w.lease, k, time.Time{})
				w.remove(s, e.ID)
				e.Next = w.now(s).Add(time.Hour)
				w.add(s, e)
				w.done(s, "a", schedule.Finish{Tick: k, Remove: true})
				w.wantExists(s, e, "an entry that was added while its predecessor was run")
				w.remove(s, e.ID)

				e = w.overdue(s)
				k = w.waitDue(s, e.ID)
				w.claim(s, "a", w.lease, k, w.now(s).Add(time.Hour))
				w.remove(s, e.ID)
				w.Until("nothing of a removed entry", func() bool {
					b := w.due(s, 10)
					return len(b.Ticks) == 0 && b.Next.IsZero()
				})
				w.wantGone(s, e, "after the lease of its claim")
			},
		},
	}
}
