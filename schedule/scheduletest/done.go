package scheduletest

import (
	"time"

	"github.com/swarmiji/swarmiji/schedule"
)

func doneCases() []testCase {
	return []testCase{
		{
			// Promises: W23, W27.
			Area: "done", Name: "nothing is left of a one-shot",
			Explain: "After the last run the entry is gone, so that the same can be added again; a run that is not the last leaves it.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				k := w.one(s, e.ID)
				w.claim(s, "a", long, k, time.Time{})
				w.finish(s, "a", schedule.Finish{Tick: k, Remove: true})
				if w.done(s, "a", schedule.Finish{Tick: k, Remove: true})[0] {
					w.Error("a claim was ended twice")
				}
				w.gone(s, e, "a one-shot after its run")
				e = w.overdue(s)
				k = w.one(s, e.ID)
				w.claim(s, "a", long, k, time.Time{})
				w.finish(s, "a", schedule.Finish{Tick: k})
				w.there(s, e, "an entry that is to be kept")
				w.none(s, "an entry that was kept without a time")
			},
		},
		{
			Area: "done", Name: "an entry that has a time stays",
			Explain: "Remove takes away only what has no time and no claim: it may have got one meanwhile, and a dead owner's tick needs its payload.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				first := w.one(s, e.ID)
				w.claim(s, "a", long, first, w.now(s).Add(-10*time.Millisecond))
				second := w.one(s, e.ID)
				w.finish(s, "a", schedule.Finish{Tick: first, Remove: true})
				w.there(s, e, "an entry with a time")

				e = w.overdue(s)
				first = w.again(s, e.ID)
				w.claim(s, "a", long, first, w.now(s).Add(-10*time.Millisecond))
				for _, k := range w.due(s, 10).Ticks {
					if k.ID == e.ID {
						second = k
					}
				}
				w.claim(s, "b", long, second, time.Time{})
				w.finish(s, "b", schedule.Finish{Tick: second, Remove: true})
				w.there(s, e, "an entry of which another tick is claimed")
				w.finish(s, "a", schedule.Finish{Tick: first, Remove: true})
				w.gone(s, e, "an entry after its last claim")
			},
		},
		{
			Area: "done", Name: "what is carried",
			Explain: "What a run leaves is handed to the next one, byte for byte; nothing said leaves it as it is, and nothing left takes it away.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				next := func(after string, state []byte) schedule.Tick {
					k := w.again(s, e.ID)
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
			Explain: "A run may carry for another entry, as one that was asked for out of turn does; for an entry that is gone nothing is kept.",
			Run: func(w *world) {
				s := w.Open()
				e := w.entry(w.now(s).Add(400 * time.Millisecond))
				w.add(s, e)
				run := func(of string) {
					once := w.overdue(s)
					k := w.again(s, once.ID)
					w.claim(s, "a", long, k, time.Time{})
					w.finish(s, "a", schedule.Finish{Tick: k, Remove: true, State: []byte("x"), StateOf: of})
				}
				run(e.ID)
				if k := w.again(s, e.ID); string(k.State) != "x" {
					w.Errorf("the entry has %q", k.State)
				}
				w.remove(s, e.ID)
				run(e.ID)
				e.Next = w.now(s)
				w.add(s, e)
				if k := w.again(s, e.ID); k.State != nil {
					w.Errorf("a new entry has %q of an older one", k.State)
				}
			},
		},
	}
}

func removeCases() []testCase {
	return []testCase{
		{
			Area: "remove", Name: "all of it",
			Explain: "An entry is taken away with its time and what it carried, whether it is due, paused or run.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				k := w.one(s, e.ID)
				if !w.try(s, "a", long, schedule.Claim{Tick: k, Next: w.now(s), Remember: true})[0] {
					w.Fatal("not claimed")
				}
				w.finish(s, "a", schedule.Finish{Tick: k, State: []byte("x")})
				if !w.remove(w.Open(), e.ID) {
					w.Error("Remove says that there was none")
				}
				if w.remove(s, e.ID) || w.remove(s, "nobody") {
					w.Error("Remove says that there was one")
				}
				w.none(s, "an entry that was removed")
				e.Next = w.now(s).Add(-time.Second)
				w.add(s, e)
				if k := w.one(s, e.ID); k.State != nil || !k.Last.IsZero() {
					w.Errorf("the new entry has the state %q and the last tick %v of the old one", k.State, k.Last)
				}
			},
		},
		{
			Area: "remove", Name: "while it is run",
			Explain: "A run of a removed entry ends without harm: the entry does not come back, and one that was added anew stays.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				k := w.one(s, e.ID)
				w.claim(s, "a", w.lease, k, time.Time{})
				w.remove(s, e.ID)
				e.Next = w.now(s).Add(time.Hour)
				w.add(s, e)
				w.done(s, "a", schedule.Finish{Tick: k, Remove: true})
				w.there(s, e, "an entry that was added while its predecessor was run")
				w.remove(s, e.ID)

				e = w.overdue(s)
				k = w.again(s, e.ID)
				w.claim(s, "a", w.lease, k, w.now(s).Add(time.Hour))
				w.remove(s, e.ID)
				w.Until("nothing of a removed entry", func() bool {
					b := w.due(s, 10)
					return len(b.Ticks) == 0 && b.Next.IsZero()
				})
				w.gone(s, e, "after the lease of its claim")
			},
		},
	}
}
