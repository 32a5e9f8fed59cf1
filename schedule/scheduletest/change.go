package scheduletest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
)

// needsChange is the [need] of cases that call Change.
func needsChange(h *Harness) string {
	if !h.Promises.Change {
		return "the adapter does not promise Change"
	}
	return ""
}

// tryChange calls Change and returns the answer. It fails the test after an error, or if the answer
// has a wrong length.
func (w *world) tryChange(s Store, c schedule.Change) schedule.Changed {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	changed, err := offers[schedule.Changer](w, s).Change(ctx, c)
	w.Must(err, "Change")
	outdated := c.Group != "" && changed.Revision > c.Revision
	if n := len(c.Entries); !outdated && (len(changed.Outcomes) != n || len(changed.Next) != n) {
		w.Fatalf("a change of %d entries has %d outcomes and %d times", n, len(changed.Outcomes), len(changed.Next))
	}
	return changed
}

// change calls Change as tryChange does, returns the answer, and fails the test unless the entries
// have these outcomes.
func (w *world) change(s Store, c schedule.Change, want ...schedule.Outcome) schedule.Changed {
	w.Helper()
	changed := w.tryChange(s, c)
	if !slices.Equal(changed.Outcomes, want) {
		w.Fatalf("the change of group %q to revision %d: outcomes %v, want %v", c.Group, c.Revision, changed.Outcomes, want)
	}
	return changed
}

// variant returns an entry with the id of e, a new payload and the due time next. It stores
// nothing.
func (w *world) variant(e schedule.Entry, next time.Time) schedule.Entry {
	return schedule.Entry{ID: e.ID, Payload: w.entry(next).Payload, Next: next}
}

// wantStored fails the test unless the stored entry has the payload and due time of e, and the
// group. It returns the stored entry.
func (w *world) wantStored(s Store, e schedule.Entry, group, what string) schedule.Entry {
	w.Helper()
	got := w.get(s, e.ID)
	if string(got.Payload) != string(e.Payload) || got.Group != group || !sameTime(got.Next, e.Next) {
		w.Errorf("%s: %s in group %q, next at %v; want %s in %q, next at %v", what, got.Payload, got.Group, got.Next, e.Payload, group, e.Next)
	}
	return got
}

// sameTime reports whether the times are equal in milliseconds; zero times are equal to each other.
func sameTime(a, b time.Time) bool { return a.IsZero() == b.IsZero() && a.UnixMilli() == b.UnixMilli() }

// syncTo returns the Change that gives a group a revision and these entries.
func syncTo(group string, revision int64, entries ...schedule.Entry) schedule.Change {
	return schedule.Change{Group: group, Revision: revision, Entries: entries}
}

// changeCases tests [schedule.Changer].
func changeCases() []testCase {
	needs := []need{needsChange, needsList}
	return []testCase{
		{
			Area: "change", Name: "added", Needs: needs,
			Explain: "Change adds an entry that does not exist to the group; an entry with equal payload is not changed, not even its due time.",
			Run: func(w *world) {
				s := w.Open()
				e, alone := w.entry(w.now(s).Add(time.Hour)), w.entry(w.now(s).Add(time.Hour))
				added := w.change(s, syncTo("g", 1, e), schedule.EntryAdded)
				if !sameTime(added.Next[0], e.Next) || added.Revision != 1 || len(added.Removed) > 0 {
					w.Errorf("the answer is %+v", added)
				}
				w.change(s, schedule.Change{Entries: []schedule.Entry{alone}}, schedule.EntryAdded)
				w.wantStored(w.Open(), e, "g", "a new entry of a group")
				w.wantStored(s, alone, "", "a new entry without a group")
				later := e
				later.Next = w.now(s).Add(2 * time.Hour)
				if again := w.change(w.Open(), syncTo("g", 1, later), schedule.EntryUnchanged); !sameTime(again.Next[0], e.Next) {
					w.Errorf("an unchanged entry has the time %v, want %v", again.Next[0], e.Next)
				}
				w.wantStored(s, e, "g", "an unchanged entry")
				if w.tryAdd(s, later)[0] {
					w.Error("Add added an entry that Change had added")
				}
			},
		},
		{
			Area: "change", Name: "another payload", Needs: append(needs, needsPause),
			Explain: "A changed entry gets its new payload and due time, and keeps its state, last runs and pause: it is the same entry.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				k := w.wantOne(s, e.ID)
				if !w.tryClaim(s, "a", long, schedule.Claim{Tick: k, Next: w.now(s).Add(time.Hour), Remember: true})[0] {
					w.Fatal("not claimed")
				}
				w.finish(s, "a", schedule.Finish{Tick: k, State: []byte("x")})
				e = w.variant(e, w.now(s).Add(2*time.Hour))
				if changed := w.change(w.Open(), schedule.Change{Entries: []schedule.Entry{e}}, schedule.EntryChanged); !sameTime(changed.Next[0], e.Next) {
					w.Errorf("the answer is %+v", changed)
				}
				check := func(got schedule.Entry, paused bool) {
					w.Helper()
					if string(got.State) != "x" || !sameTime(got.Last, k.Due) || len(got.Runs) != 1 || !sameTime(got.Runs[0], k.Due) || got.Paused != paused {
						w.Errorf("a changed entry is %+v", got)
					}
				}
				check(w.wantStored(s, e, "", "a changed entry"), false)
				w.pause(s, e.ID)
				e = w.variant(e, w.now(s).Add(3*time.Hour))
				if changed := w.change(s, schedule.Change{Entries: []schedule.Entry{e}}, schedule.EntryChanged); !changed.Next[0].IsZero() {
					w.Errorf("a paused entry has the time %v", changed.Next[0])
				}
				next := e.Next
				e.Next = time.Time{}
				check(w.wantStored(s, e, "", "a changed entry that is paused"), true)
				w.resume(s, e.ID, next)
				e.Next = next
				check(w.wantStored(s, e, "", "a changed entry after its pause"), false)
			},
		},
		{
			Area: "change", Name: "while it is run", Needs: needs,
			Explain: "A claim on a tick stays when its entry is changed, and ends as usual. If its owner dies, the tick is due again.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				k := w.wantOne(s, e.ID)
				w.claim(s, "a", long, k, time.Time{})
				e = w.variant(e, w.now(s).Add(time.Hour))
				w.change(s, schedule.Change{Entries: []schedule.Entry{e}}, schedule.EntryChanged)
				w.wantNone(s, "a tick that is claimed")
				if !w.renew(s, "a", long, k)[0] {
					w.Error("the claim was lost")
				}
				w.renew(s, "a", 0, k)
				again := w.waitDue(s, e.ID)
				w.wantDue(again, k.Due, "the tick of a dead owner")
				w.claim(s, "b", long, again, w.now(s).Add(3*time.Hour))
				w.finish(s, "b", schedule.Finish{Tick: again, State: []byte("x")})
				if got := w.wantStored(s, e, "", "after the run"); string(got.State) != "x" {
					w.Errorf("the state is %q", got.State)
				}
			},
		},
		{
			Area: "change", Name: "not removed by its last run", Needs: append(needs, needsPause),
			Explain: "The end of an entry's last run does not remove the entry if that was changed meanwhile, even if it is paused.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				k := w.wantOne(s, e.ID)
				w.claim(s, "a", long, k, time.Time{})
				w.pause(s, e.ID)
				next := w.now(s).Add(time.Hour)
				e = w.variant(e, next)
				w.change(s, schedule.Change{Entries: []schedule.Entry{e}}, schedule.EntryChanged)
				w.finish(s, "a", schedule.Finish{Tick: k, Remove: true})
				e.Next = time.Time{}
				w.wantStored(s, e, "", "after the last run by the old payload")
				w.resume(s, e.ID, w.now(s).Add(-time.Second))
				k = w.wantOne(s, e.ID)
				w.claim(s, "a", long, k, time.Time{})
				w.finish(s, "a", schedule.Finish{Tick: k, Remove: true})
				w.wantGone(s, e, "after its own last run")
			},
		},
		{
			Area: "change", Name: "overdue", Needs: needs,
			Explain: "A tick that was due when its entry was changed still runs, once, with the new payload; the next one is by the new due time.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				old := w.wantOne(s, e.ID)
				e = w.variant(e, w.now(s).Add(time.Hour))
				changed := w.change(s, schedule.Change{Entries: []schedule.Entry{e}}, schedule.EntryChanged)
				if !sameTime(changed.Next[0], e.Next) {
					w.Errorf("the next time is %v, want %v", changed.Next[0], e.Next)
				}
				if w.tryClaim(s, "a", long, schedule.Claim{Tick: old, Next: w.now(s).Add(-time.Millisecond)})[0] {
					w.Error("the tick was claimed from an answer that is older than the change")
				}
				k := w.wantOne(w.Open(), e.ID)
				w.wantDue(k, old.Due, "the tick that was due")
				if string(k.Payload) != string(e.Payload) || k.Owner != schedule.NoOwner || !sameTime(k.Next, e.Next) {
					w.Errorf("the tick is %+v", k)
				}
				w.claim(s, "b", long, k, w.now(s).Add(2*time.Hour))
				w.finish(s, "b", schedule.Finish{Tick: k, Remove: true})
				w.wantNone(s, "after the tick that was due")
				w.wantStored(s, e, "", "after the tick that was due")
			},
		},
		{
			Area: "change", Name: "only its group", Needs: needs,
			Explain: "A change of a group removes the group's other entries, with claims and state, and never touches entries of other groups or of none.",
			Run: func(w *world) {
				s := w.Open()
				next := w.now(s).Add(time.Hour)
				a, b, c, alone, named := w.entry(next), w.entry(next), w.entry(next), w.entry(next), w.entry(next)
				w.add(s, alone)
				w.change(s, schedule.Change{Entries: []schedule.Entry{named}}, schedule.EntryAdded)
				w.change(s, syncTo("other:group", 7, c), schedule.EntryAdded)
				w.change(s, syncTo("g", 1, a, b), schedule.EntryAdded, schedule.EntryAdded)
				changed := w.change(w.Open(), syncTo("g", 2, b), schedule.EntryUnchanged)
				if len(changed.Removed) != 1 || changed.Removed[0].ID != a.ID || string(changed.Removed[0].Payload) != string(a.Payload) {
					w.Errorf("removed are %+v", changed.Removed)
				}
				w.wantStored(s, b, "g", "an entry of the group")
				w.wantStored(s, c, "other:group", "an entry of another group")
				w.wantStored(s, alone, "", "an entry of no group")
				w.wantStored(s, named, "", "an entry of no group")
				w.wantGone(s, a, "an entry that the group no longer has")
				w.change(s, syncTo("g", 3))
				if n := len(w.list(s, 10)); n != 3 {
					w.Errorf("%d entries are left, want 3", n)
				}
			},
		},
		{
			Area: "change", Name: "removed while it is run", Needs: needs,
			Explain: "A removed entry is gone with its claims: an entry with the same id that is added later has no tick of it.",
			Run: func(w *world) {
				s := w.Open()
				e := w.entry(w.now(s).Add(300 * time.Millisecond))
				w.change(s, syncTo("g", 1, e), schedule.EntryAdded)
				k := w.waitDue(s, e.ID)
				w.claim(s, "a", w.lease, k, w.now(s).Add(time.Hour))
				w.change(s, syncTo("g", 2))
				e = w.variant(e, w.now(s).Add(time.Hour))
				w.change(s, syncTo("g", 3, e), schedule.EntryAdded)
				w.done(s, "a", schedule.Finish{Tick: k, Remove: true, State: []byte("x")})
				if got := w.wantStored(s, e, "g", "the new entry"); len(got.Runs) > 0 || got.Paused {
					w.Errorf("the new entry is %+v", got)
				}
				if b := w.due(s, 10); len(b.Ticks) > 0 || !sameTime(b.Next, e.Next) {
					w.Errorf("due are %v, next at %v, want %v", show(b.Ticks), b.Next, e.Next)
				}
			},
		},
		{
			Area: "change", Name: "a lower revision", Needs: needs,
			Explain: "A lower revision than the group's changes nothing and gets that revision: old programs that start late undo nothing.",
			Run: func(w *world) {
				s := w.Open()
				old := w.entry(w.now(s).Add(time.Hour))
				first := int64(math.MinInt64)
				e := old
				w.change(s, syncTo("g", first, old), schedule.EntryAdded)
				for _, revision := range []int64{-10, -9, 9, 10, 1<<53 + 1, math.MaxInt64} {
					e = w.variant(e, w.now(s).Add(2*time.Hour))
					w.change(s, syncTo("g", revision, e), schedule.EntryChanged)
					for _, lower := range []int64{first, revision - 1} {
						got := w.tryChange(w.Open(), syncTo("g", lower, old, w.entry(old.Next)))
						if got.Revision != revision || got.Outcomes != nil || len(got.Removed) > 0 {
							w.Errorf("revision %d after %d: %+v", lower, revision, got)
						}
					}
					w.wantStored(s, e, "g", fmt.Sprint("revision ", revision))
					w.change(w.Open(), syncTo("g", revision, e), schedule.EntryUnchanged)
				}
				if n := len(w.list(s, 10)); n != 1 {
					w.Errorf("there are %d entries", n)
				}
			},
		},
		{
			Area: "change", Name: "a revision without other entries", Needs: needs,
			Explain: "The group gets the revision of a change also if no entry changes, or if it has no entry.",
			Run: func(w *world) {
				s := w.Open()
				e := w.entry(w.now(s).Add(time.Hour))
				w.change(s, syncTo("g", 1, e), schedule.EntryAdded)
				w.change(s, syncTo("g", 5, e), schedule.EntryUnchanged)
				if got := w.tryChange(s, syncTo("g", 4)); got.Revision != 5 {
					w.Errorf("the group has revision %d, want 5", got.Revision)
				}
				w.change(s, syncTo("empty", 3))
				if got := w.tryChange(w.Open(), syncTo("empty", 2)); got.Revision != 3 {
					w.Errorf("an empty group got an older empty change: %+v", got)
				}
				if got := w.tryChange(w.Open(), syncTo("empty", 2, w.entry(e.Next))); got.Revision != 3 || got.Outcomes != nil {
					w.Errorf("an empty group: %+v", got)
				}
			},
		},
		{
			Area: "change", Name: "late or taken", Needs: needs,
			Explain: "Nothing changes if a new due time has passed, since the old tick of that instant may have run, or if an entry is of another group.",
			Run: func(w *world) {
				s := w.Open()
				next := w.now(s).Add(time.Hour)
				e, alone, other := w.entry(next), w.entry(next), w.entry(next)
				w.add(s, alone)
				w.change(s, syncTo("other", 1, other), schedule.EntryAdded)
				w.change(s, syncTo("g", 1, e), schedule.EntryAdded)
				changed, gone := w.variant(e, next.Add(time.Hour)), w.entry(next)
				late := w.variant(e, w.now(s))
				newLate := w.entry(w.now(s).Add(-time.Second))
				w.change(s, syncTo("g", 2, changed, newLate, gone), schedule.EntryChanged, schedule.Late, schedule.EntryAdded)
				w.change(s, syncTo("g", 2, late), schedule.Late)
				for _, taken := range []schedule.Entry{alone, other, w.variant(other, next)} {
					w.change(s, syncTo("g", 2, changed, taken, gone), schedule.EntryChanged, schedule.Taken, schedule.EntryAdded)
				}
				w.change(s, schedule.Change{Entries: []schedule.Entry{changed}}, schedule.Taken)
				w.wantStored(s, e, "g", "an entry beside a refused one")
				w.wantStored(s, other, "other", "an entry of another group")
				w.wantStored(s, alone, "", "an entry of no group")
				if n := len(w.list(s, 10)); n != 3 {
					w.Errorf("there are %d entries, want 3", n)
				}
				w.change(s, syncTo("g", 1, e), schedule.EntryUnchanged) // the revision did not change either
			},
		},
		{
			Area: "change", Name: "a dry run", Needs: needs,
			Explain: "A dry run changes nothing, and its answer is that of the change.",
			Run: func(w *world) {
				s := w.Open()
				next := w.now(s).Add(time.Hour)
				a, b, c := w.entry(next), w.entry(next), w.entry(next)
				w.change(s, syncTo("g", 1, a, b), schedule.EntryAdded, schedule.EntryAdded)
				a2 := w.variant(a, next.Add(time.Hour))
				dry := syncTo("g", 2, a2, c)
				dry.DryRun = true
				for range 2 {
					got := w.change(s, dry, schedule.EntryChanged, schedule.EntryAdded)
					if got.Revision != 2 || len(got.Removed) != 1 || got.Removed[0].ID != b.ID || !sameTime(got.Next[0], a2.Next) {
						w.Errorf("the answer is %+v", got)
					}
				}
				w.wantStored(s, a, "g", "after a dry run")
				w.wantStored(s, b, "g", "after a dry run")
				if n := len(w.list(s, 10)); n != 2 {
					w.Errorf("there are %d entries, want 2", n)
				}
				w.change(s, syncTo("g", 1, a, b), schedule.EntryUnchanged, schedule.EntryUnchanged)
			},
		},
		{
			Area: "change", Name: "over", Needs: needs,
			Explain: "An entry without a further run is not added; an entry that becomes such a one is removed; one that is equal stays until its last run.",
			Run: func(w *world) {
				s := w.Open()
				e := w.entry(w.now(s).Add(time.Hour))
				over := schedule.Entry{ID: e.ID, Payload: e.Payload}
				w.change(s, syncTo("g", 1, over), schedule.EntryOver)
				w.wantGone(s, e, "an entry that is over")
				w.change(s, syncTo("g", 1, e), schedule.EntryAdded)
				w.change(s, syncTo("g", 1, over), schedule.EntryUnchanged)
				w.wantStored(s, e, "g", "an entry whose times are over for this caller")
				over.Payload = w.entry(e.Next).Payload
				w.change(s, syncTo("g", 1, over), schedule.EntryOver)
				w.wantGone(s, e, "an entry that is over")
				if b := w.due(s, 10); len(b.Ticks) > 0 || !b.Next.IsZero() {
					w.Errorf("something is left: %v, next at %v", show(b.Ticks), b.Next)
				}
			},
		},
		{
			Area: "change", Name: "an entry that has lost its time", Needs: needs,
			Explain: "An equal entry without due time, claim and pause gets its due time, as Add gives it.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				w.stray(s, e.ID)
				e.Next = w.now(s).Add(time.Hour)
				if got := w.change(s, schedule.Change{Entries: []schedule.Entry{e}}, schedule.EntryUnchanged); !sameTime(got.Next[0], e.Next) {
					w.Errorf("the answer is %+v", got)
				}
				w.wantStored(s, e, "", "an entry that had lost its time")
				run := w.overdue(s)
				w.claim(s, "a", long, w.wantOne(s, run.ID), time.Time{})
				run.Next = e.Next
				w.change(s, schedule.Change{Entries: []schedule.Entry{run}}, schedule.EntryUnchanged)
				run.Next = time.Time{}
				w.wantStored(s, run, "", "an entry that is run")
			},
		},
		{
			Area: "change", Name: "the last runs", Needs: needs,
			Explain: "A claim with Remember adds its instant to the entry's Runs, which are the newest five, the newest first.",
			Run: func(w *world) {
				s := w.Open()
				base := w.now(s).Add(-time.Minute)
				e := w.entry(base)
				w.add(s, e)
				var want []int64
				for i := range 8 {
					k := w.wantOne(s, e.ID)
					next := base.Add(time.Duration(i+1) * time.Second)
					remember := i != 3
					if !w.tryClaim(s, "a", long, schedule.Claim{Tick: k, Next: next, Remember: remember})[0] {
						w.Fatal("not claimed")
					}
					if remember {
						want = append([]int64{k.Due.UnixMilli()}, want...)
					}
					w.tryClaim(s, "a", long, schedule.Claim{Tick: k, Next: next, Remember: remember})
					w.finish(s, "a", schedule.Finish{Tick: k})
				}
				var got []int64
				for _, t := range w.get(w.Open(), e.ID).Runs {
					got = append(got, t.UnixMilli())
				}
				if !slices.Equal(got, want[:schedule.KeptRuns]) {
					w.Errorf("the last runs are %v, want %v", got, want[:schedule.KeptRuns])
				}
			},
		},
		{
			Area: "change", Name: "in any order", Needs: needs,
			Explain: "If processes change a group at the same time, the entries of the highest revision are left, and nothing of the others.",
			Run: func(w *world) {
				stores := []Store{w.Open(), w.Open(), w.Open(), w.Open()}
				next := w.now(stores[0]).Add(time.Hour)
				var shared schedule.Entry
				for round := range 5 {
					group := fmt.Sprint("g", round)
					want := make([][]schedule.Entry, len(stores))
					shared = w.entry(next)
					var wg sync.WaitGroup
					for i, s := range stores {
						want[i] = []schedule.Entry{w.variant(shared, next), w.entry(next), w.entry(next)}
						wg.Go(func() { w.tryChange(s, syncTo(group, int64(i), want[i]...)) })
					}
					wg.Wait()
					last := want[len(stores)-1]
					found := w.list(stores[0], 100)
					if len(found) != len(last) {
						w.Errorf("%d entries are left, want %d", len(found), len(last))
					}
					for _, e := range last {
						w.wantStored(stores[0], e, group, "an entry of the highest revision")
					}
					w.change(stores[1], syncTo(group, 10))
				}
			},
		},
		{
			Area: "change", Name: "what is no change", Needs: needs,
			Explain: "An invalid change is refused with ErrBadEntry, and nothing of it is made.",
			Run: func(w *world) {
				s := w.Open()
				good := w.entry(w.now(s).Add(time.Hour))
				bad := map[string]schedule.Change{
					"with an id twice":     syncTo("g", 1, good, w.variant(good, good.Next)),
					"with a bad group":     syncTo("a\nb", 1, good),
					"with a long group":    syncTo(strings.Repeat("x", 256), 1, good),
					"without a payload":    syncTo("g", 1, good, schedule.Entry{ID: "x", Next: good.Next}),
					"without an id":        syncTo("g", 1, good, schedule.Entry{Payload: good.Payload, Next: good.Next}),
					"with too many":        {Group: "g", Revision: 1, Entries: make([]schedule.Entry, schedule.MaxChange+1)},
					"in the year 123,456":  syncTo("g", 1, good, schedule.Entry{ID: "x", Payload: good.Payload, Next: time.Date(123_456, 1, 1, 0, 0, 0, 0, time.UTC)}),
					"with too large a sum": {Group: "g", Revision: 1, Entries: large(w)},
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				for name, c := range bad {
					_, err := offers[schedule.Changer](w, s).Change(ctx, c)
					w.WantIs(err, schedule.ErrBadEntry, "a change %s", name)
				}
				w.wantGone(s, good, "an entry beside a bad one")
				odd := syncTo(`group "with" {odd}:signs/*`, 1, good)
				w.change(s, odd, schedule.EntryAdded)
				w.wantStored(w.Open(), good, odd.Group, "an entry of an odd group")
			},
		},
	}
}

// large returns entries whose payloads are too large together.
func large(w *world) []schedule.Entry {
	entries := make([]schedule.Entry, schedule.MaxChangeBytes/schedule.MaxPayload+1)
	for i := range entries {
		entries[i] = w.entry(time.Unix(0, 0))
		entries[i].Payload = make([]byte, schedule.MaxPayload)
	}
	return entries
}
