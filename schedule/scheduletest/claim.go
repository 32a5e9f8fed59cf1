package scheduletest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
)

// claimCases tests Store.Claim.
func claimCases() []testCase {
	return []testCase{
		{
			// Promises: W17.
			Area: "claim", Name: "one of many",
			Explain: "If several owners claim a tick, exactly one gets it.",
			Run: func(w *world) {
				stores := []Store{w.Open(), w.Open(), w.Open(), w.Open()}
				for range 10 {
					e := w.overdue(stores[0])
					k := w.wantOne(stores[0], e.ID)
					var won atomic.Int32
					var wg sync.WaitGroup
					for i, s := range stores {
						wg.Go(func() {
							if w.tryClaim(s, fmt.Sprint("owner-", i), long, schedule.Claim{Tick: k})[0] {
								won.Add(1)
							}
						})
					}
					wg.Wait()
					if n := won.Load(); n != 1 {
						w.Fatalf("%d processes got the tick", n)
					}
					w.wantNone(stores[1], "a claimed one-shot")
				}
			},
		},
		{
			Area: "claim", Name: "many in one call",
			Explain: "Each claim of a call has its own result: another process may hold some of the ticks.",
			Run: func(w *world) {
				s := w.Open()
				entries, now := make([]schedule.Entry, 600), w.now(s)
				for i := range entries {
					entries[i] = w.entry(now.Add(-time.Hour + time.Duration(i)*time.Millisecond))
				}
				w.add(s, entries...)
				var claims []schedule.Claim
				for _, k := range w.due(s, 600).Ticks {
					claims = append(claims, schedule.Claim{Tick: k})
				}
				w.tryClaim(s, "other", long, claims[5], claims[500])
				for i, won := range w.tryClaim(s, "a", long, claims...) {
					if won == (i == 5 || i == 500) {
						w.Errorf("claim %d: %v", i, won)
					}
				}
				w.wantNone(s, "after all were claimed")
			},
		},
		{
			// Promises: W21, W26.
			Area: "claim", Name: "a recurring entry goes on",
			Explain: "A claim gives the entry its next due time in the same step, so that a crash right after it loses no later run.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				k := w.wantOne(s, e.ID)
				next := w.now(s).Add(-10 * time.Millisecond)
				w.claim(s, "a", long, k, next)
				second := w.wantOne(w.Open(), e.ID)
				w.wantDue(second, next, "the next tick")
				if second.Owner != "" {
					w.Errorf("the next tick is owned by %q", second.Owner)
				}
				third := w.now(s).Add(time.Hour)
				w.claim(s, "b", long, second, third)
				w.wantNone(s, "the third tick, in an hour")
				if b := w.due(s, 1); b.Next.IsZero() || b.Next.After(third) {
					w.Errorf("the next time is %v, want at most %v", b.Next, third)
				}
				if held := w.renew(s, "a", long, k); !held[0] {
					w.Error("the claim of the first tick ended when the second was claimed")
				}
			},
		},
		{
			Area: "claim", Name: "a tick that was moved",
			Explain: "A claim compares the tick with its state in the store, so that an old result of Due cannot run a tick again.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				old := w.wantOne(s, e.ID)
				next := w.now(s).Add(-10 * time.Millisecond)
				w.claim(s, "a", long, old, next)
				w.finish(s, "a", schedule.Finish{Tick: old})
				if w.tryClaim(s, "b", long, schedule.Claim{Tick: old, Next: w.now(s).Add(time.Hour)})[0] {
					w.Error("a tick that was done was claimed from an old answer")
				}
				w.wantDue(w.wantOne(s, e.ID), next, "after a claim that was refused")
				missing := old
				missing.ID = "nobody"
				missing.Ref = ""
				if w.tryClaim(s, "b", long, schedule.Claim{Tick: missing})[0] {
					w.Error("a tick of an entry that does not exist was claimed")
				}
				w.remove(s, e.ID)
				if w.tryClaim(s, "b", long, schedule.Claim{Tick: old})[0] {
					w.Error("a tick of an entry that was removed was claimed")
				}
			},
		},
		{
			Area: "claim", Name: "asked for again",
			Explain: "If an owner repeats a claim because the answer was lost, it still holds the tick, and holds it once.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				k := w.wantOne(s, e.ID)
				next := w.now(s).Add(time.Hour)
				for range 3 {
					w.claim(s, "a", long, k, next)
				}
				if w.tryClaim(s, "b", long, schedule.Claim{Tick: k, Next: next})[0] {
					w.Error("another owner got it as well")
				}
				w.finish(s, "a", schedule.Finish{Tick: k})
				w.wantNone(s, "after it was claimed three times and done once")
				w.wantExists(s, e, "a recurring entry after a run")
			},
		},
		{
			Area: "claim", Name: "the last tick remembered",
			Explain: "A claim with Remember stores its instant as the entry's Last.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				k := w.wantOne(s, e.ID)
				next := w.now(s).Add(-10 * time.Millisecond)
				if !w.tryClaim(s, "a", long, schedule.Claim{Tick: k, Next: next, Remember: true})[0] {
					w.Fatal("not claimed")
				}
				second := w.wantOne(s, e.ID)
				if second.Last.UnixMilli() != k.Due.UnixMilli() {
					w.Errorf("the last tick is %v, want %v", second.Last, k.Due)
				}
				w.claim(s, "a", long, second, w.now(s).Add(-5*time.Millisecond))
				if third := w.wantOne(s, e.ID); third.Last.UnixMilli() != k.Due.UnixMilli() {
					w.Errorf("a claim that did not ask for it changed the last tick to %v", third.Last)
				}
			},
		},
		{
			Area: "claim", Name: "what is no claim",
			Explain: "An empty owner and a lease outside the limits are refused with ErrBadEntry.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				k := w.wantOne(s, e.ID)
				ctx, cancel := w.Ctx()
				defer cancel()
				_, err := s.Claim(ctx, "", long, []schedule.Claim{{Tick: k}})
				w.WantIs(err, schedule.ErrBadEntry, "a claim without an owner")
				_, err = s.Claim(ctx, "a", schedule.MaxLease+1, []schedule.Claim{{Tick: k}})
				w.WantIs(err, schedule.ErrBadEntry, "a lease that is too long")
				_, err = s.Renew(ctx, "a", -1, []schedule.Tick{k})
				w.WantIs(err, schedule.ErrBadEntry, "a negative lease")
				_, err = s.Done(ctx, "a", []schedule.Finish{{Tick: k, State: make([]byte, schedule.MaxState+1)}})
				w.WantIs(err, schedule.ErrBadEntry, "a state that is too large")
				w.wantOne(s, e.ID)
			},
		},
	}
}

// leaseCases tests Store.Renew and ticks whose leases have ended.
func leaseCases() []testCase {
	return []testCase{
		{
			Area: "lease", Name: "a dead owner",
			Explain: "After its lease a claimed tick is due again with its own instant, because the id of its task is derived from it.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				k := w.wantOne(s, e.ID)
				next := w.now(s).Add(time.Hour)
				w.claim(s, "dead", w.lease, k, next)
				w.wantNone(s, "a claim that holds")
				again := w.waitDue(w.Open(), e.ID)
				w.wantDue(again, e.Next, "the tick of a dead owner")
				if again.Owner != "dead" {
					w.Errorf("the owner is %q", again.Owner)
				}
				w.claim(s, "b", long, again, next)
				if w.tryClaim(s, "c", long, schedule.Claim{Tick: again, Next: next})[0] {
					w.Error("two processes took over one tick")
				}
				if w.renew(s, "dead", long, k)[0] {
					w.Error("who was taken for dead renewed his claim")
				}
				if w.done(s, "dead", schedule.Finish{Tick: k, Remove: true, State: []byte("x")})[0] {
					w.Error("who was taken for dead ended his successor's claim")
				}
				if !w.renew(s, "b", long, again)[0] {
					w.Error("the successor has lost the tick")
				}
				w.finish(s, "b", schedule.Finish{Tick: again})
				w.wantExists(s, e, "a recurring entry after its owner died")
				if b := w.due(s, 1); b.Next.UnixMilli() != next.UnixMilli() {
					w.Errorf("the entry's next time is %v, want %v", b.Next, next)
				}
			},
		},
		{
			Area: "lease", Name: "a dead owner of a one-shot",
			Explain: "A claimed one-shot is no longer due, but must not be lost if its owner dies.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				w.claim(s, "dead", w.lease, w.wantOne(s, e.ID), time.Time{})
				w.wantExists(s, e, "a one-shot whose owner died")
				again := w.waitDue(s, e.ID)
				w.wantDue(again, e.Next, "the tick of a dead owner")
				w.claim(s, "b", long, again, time.Time{})
				w.finish(s, "b", schedule.Finish{Tick: again, Remove: true})
				w.wantGone(s, e, "after the second owner's run")
			},
		},
		{
			Area: "lease", Name: "a successor leaves the place alone",
			Explain: "Taking over an expired claim sets the entry's due time only if it has no due time: later ticks may have run already.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				first := w.now(s).Add(time.Hour)
				w.claim(s, "dead", w.lease, w.wantOne(s, e.ID), first)
				w.claim(s, "b", long, w.waitDue(s, e.ID), w.now(s).Add(2*time.Hour))
				w.finish(s, "b", schedule.Finish{Tick: schedule.Tick{Entry: e, Due: e.Next}})
				if b := w.due(s, 1); b.Next.UnixMilli() != first.UnixMilli() {
					w.Errorf("the entry's next time is %v, want %v", b.Next, first)
				}
			},
		},
		{
			Area: "lease", Name: "a tick put off",
			Explain: "A claim without a next due time postpones the whole entry until its lease ends; the next claim sets the due time.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				w.claim(s, "a", w.lease, w.wantOne(s, e.ID), time.Time{})
				w.wantNone(s, "an entry that was put off")
				k := w.waitDue(s, e.ID)
				w.wantDue(k, e.Next, "a tick that was put off")
				next := w.now(s).Add(time.Hour)
				w.claim(s, "b", long, k, next)
				w.finish(s, "b", schedule.Finish{Tick: k})
				if b := w.due(s, 1); b.Next.UnixMilli() != next.UnixMilli() {
					w.Errorf("the entry's next time is %v, want %v", b.Next, next)
				}
			},
		},
		{
			Area: "lease", Name: "renewed",
			Explain: "A renewed claim lasts longer than its first lease; an expired one can be renewed until another owner claims the tick.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				k := w.wantOne(s, e.ID)
				w.claim(s, "a", w.lease, k, time.Time{})
				w.waitDue(s, e.ID) // its lease has ended
				if w.renew(s, "b", long, k)[0] {
					w.Error("another owner renewed the claim")
				}
				if !w.renew(s, "a", long, k)[0] {
					w.Fatal("a claim that nobody else took was not renewed")
				}
				w.wantNone(s, "a claim that was renewed")
				if missing := (schedule.Tick{Entry: schedule.Entry{ID: "nobody"}, Due: k.Due}); w.renew(s, "a", long, missing)[0] {
					w.Error("a claim was renewed that never was")
				}
				w.finish(s, "a", schedule.Finish{Tick: k, Remove: true})
				if w.renew(s, "a", long, k)[0] {
					w.Error("a claim was renewed that was done")
				}
				w.wantNone(s, "a renewal after the end")
			},
		},
		{
			Area: "lease", Name: "given back",
			Explain: "Renew with a lease of 0 releases the tick: it is due again at once, with its instant, for any owner.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				k := w.wantOne(s, e.ID)
				w.claim(s, "a", long, k, time.Time{})
				if !w.renew(s, "a", 0, k)[0] {
					w.Fatal("not given back")
				}
				again := w.waitDue(w.Open(), e.ID)
				w.wantDue(again, e.Next, "a tick that was given back")
				w.claim(s, "b", long, again, time.Time{})
				if w.done(s, "a", schedule.Finish{Tick: k, Remove: true})[0] {
					w.Error("who gave the tick back ended it")
				}
			},
		},
		{
			Area: "lease", Name: "many in one call",
			Explain: "Renew and Done return a result for each tick.",
			Run: func(w *world) {
				s := w.Open()
				var claims []schedule.Claim
				entries, now := make([]schedule.Entry, 600), w.now(s)
				for i := range entries {
					entries[i] = w.entry(now.Add(-time.Second))
				}
				w.add(s, entries...)
				ticks := w.due(s, 600).Ticks
				for _, k := range ticks {
					claims = append(claims, schedule.Claim{Tick: k})
				}
				w.tryClaim(s, "a", long, claims[:300]...)
				w.tryClaim(s, "b", long, claims[300:]...)
				finishes := make([]schedule.Finish, len(ticks))
				for i, k := range ticks {
					finishes[i] = schedule.Finish{Tick: k, Remove: true}
				}
				for i, held := range w.renew(s, "b", long, ticks...) {
					if held != (i >= 300) {
						w.Fatalf("renewal %d: %v", i, held)
					}
				}
				for i, held := range w.done(s, "b", finishes...) {
					if held != (i >= 300) {
						w.Fatalf("finish %d: %v", i, held)
					}
				}
				if !all(w.done(s, "a", finishes[:300]...), true) {
					w.Error("the other owner has lost his")
				}
				if b := w.due(s, 10); len(b.Ticks) > 0 || !b.Next.IsZero() {
					w.Errorf("something is left: %v, next at %v", show(b.Ticks), b.Next)
				}
			},
		},
	}
}
