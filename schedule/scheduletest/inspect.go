package scheduletest

import (
	"bytes"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/schedule"
)

// offers returns the optional interface T of the store. It fails the test if the store does not
// have T, although the adapter promises it.
func offers[T any](w *world, s Store) T {
	w.Helper()
	t, ok := capability.As[T](s)
	if !ok {
		w.Fatalf("%T does not have what it promises", s)
	}
	return t
}

// get returns an entry and fails the test after an error.
func (w *world) get(s Store, id string) schedule.Entry {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	e, err := offers[schedule.Lister](w, s).Get(ctx, id)
	w.Must(err, "Get")
	return e
}

// pause pauses an entry and fails the test after an error.
func (w *world) pause(s Store, id string) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(offers[schedule.Pauser](w, s).Pause(ctx, id), "Pause")
}

// resume resumes an entry with the due time next and fails the test after an error.
func (w *world) resume(s Store, id string, next time.Time) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(offers[schedule.Pauser](w, s).Resume(ctx, id, next), "Resume")
}

// list returns the entries of all pages by id, with page as the limit of each. It fails the test
// after an error.
func (w *world) list(s Store, page int) map[string]schedule.Entry {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	found := map[string]schedule.Entry{}
	for cursor := ""; ; {
		entries, next, err := offers[schedule.Lister](w, s).List(ctx, cursor, page)
		w.Must(err, "List")
		for _, e := range entries {
			found[e.ID] = e
		}
		if cursor = next; cursor == "" {
			return found
		}
	}
}

// listCases tests [schedule.Lister].
func listCases() []testCase {
	return []testCase{
		{
			Area: "list", Name: "an entry by its id",
			Explain: "Get returns an entry with its payload, due time, state and last tick.",
			Needs:   []need{needsList},
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				got := w.get(w.Open(), e.ID)
				if got.ID != e.ID || !bytes.Equal(got.Payload, e.Payload) || got.Next.UnixMilli() != e.Next.UnixMilli() {
					w.Errorf("got %+v", got)
				}
				k := w.wantOne(s, e.ID)
				next := w.now(s).Add(time.Hour)
				if !w.tryClaim(s, "a", long, schedule.Claim{Tick: k, Next: next, Remember: true})[0] {
					w.Fatal("not claimed")
				}
				w.finish(s, "a", schedule.Finish{Tick: k, State: []byte("x")})
				got = w.get(s, e.ID)
				if got.Next.UnixMilli() != next.UnixMilli() || got.Last.UnixMilli() != k.Due.UnixMilli() || string(got.State) != "x" {
					w.Errorf("after a run: %+v", got)
				}
				once := w.overdue(s)
				w.claim(s, "a", long, w.wantOne(s, once.ID), time.Time{})
				if got = w.get(s, once.ID); !got.Next.IsZero() {
					w.Errorf("a one-shot that is run has a next time, %v", got.Next)
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				_, err := offers[schedule.Lister](w, s).Get(ctx, "nobody")
				w.WantIs(err, schedule.ErrNotFound, "Get of an entry that does not exist")
			},
		},
		{
			Area: "list", Name: "page by page",
			Explain: "List returns each entry that exists during the whole iteration, with any page size.",
			Needs:   []need{needsList},
			Run: func(w *world) {
				s := w.Open()
				if n := len(w.list(s, 10)); n != 0 {
					w.Errorf("an empty schedule lists %d", n)
				}
				entries := make([]schedule.Entry, 1200)
				for i := range entries {
					entries[i] = w.entry(w.now(s).Add(time.Hour))
				}
				w.add(s, entries...)
				for _, page := range []int{7, 100, 5000} {
					found := w.list(s, page)
					if len(found) != len(entries) {
						w.Fatalf("pages of %d: %d of %d", page, len(found), len(entries))
					}
					for _, e := range entries {
						if got := found[e.ID]; !bytes.Equal(got.Payload, e.Payload) || got.Next.UnixMilli() != e.Next.UnixMilli() {
							w.Fatalf("pages of %d: got %+v", page, got)
						}
					}
				}
			},
		},
	}
}

// pauseCases tests [schedule.Pauser].
func pauseCases() []testCase {
	return []testCase{
		{
			Area: "pause", Name: "not while it is paused",
			Explain: "A paused entry is not due and keeps its other fields; Resume gives it the given due time.",
			Needs:   []need{needsPause, needsList},
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				w.pause(w.Open(), e.ID)
				w.pause(s, e.ID)
				w.wantNone(s, "a paused entry")
				if b := w.due(s, 1); !b.Next.IsZero() {
					w.Errorf("a paused entry has a time, %v", b.Next)
				}
				w.wantExists(s, e, "a paused entry")
				if got := w.get(s, e.ID); !got.Paused || !got.Next.IsZero() {
					w.Errorf("a paused entry is shown as %+v", got)
				}
				if got := w.list(s, 10)[e.ID]; !got.Paused {
					w.Errorf("a paused entry is listed as %+v", got)
				}
				next := w.now(s).Add(-time.Second)
				w.resume(s, e.ID, next)
				w.wantDue(w.wantOne(s, e.ID), next, "an entry that goes on")
				w.resume(s, e.ID, next.Add(time.Hour))
				w.wantDue(w.wantOne(s, e.ID), next, "an entry that was resumed twice")
				if w.get(s, e.ID).Paused {
					w.Error("it is still paused")
				}
			},
		},
		{
			Area: "pause", Name: "while it is run",
			Explain: "A claimed tick continues during a pause. Neither a claim nor a takeover gives a paused entry a due time.",
			Needs:   []need{needsPause},
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				k := w.wantOne(s, e.ID)
				w.claim(s, "dead", w.lease, k, w.now(s).Add(time.Hour))
				w.pause(s, e.ID)
				again := w.waitDue(s, e.ID)
				w.claim(s, "b", long, again, w.now(s))
				w.finish(s, "b", schedule.Finish{Tick: again, State: []byte("x")})
				if b := w.due(s, 10); len(b.Ticks) > 0 || !b.Next.IsZero() {
					w.Errorf("a paused entry is due: %v, next at %v", show(b.Ticks), b.Next)
				}
				w.resume(s, e.ID, w.now(s))
				if k := w.waitDue(s, e.ID); string(k.State) != "x" {
					w.Errorf("it carries %q", k.State)
				}
			},
		},
		{
			Area: "pause", Name: "removed while it is paused",
			Explain: "Removing an entry removes its pause: the same entry is due when it is added again.",
			Needs:   []need{needsPause},
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				w.pause(s, e.ID)
				w.remove(s, e.ID)
				w.add(s, e)
				w.wantOne(s, e.ID)
				ctx, cancel := w.Ctx()
				defer cancel()
				p := offers[schedule.Pauser](w, s)
				w.WantIs(p.Pause(ctx, "nobody"), schedule.ErrNotFound, "Pause of an entry that does not exist")
				w.WantIs(p.Resume(ctx, "nobody", w.now(s)), schedule.ErrNotFound, "Resume of an entry that does not exist")
			},
		},
	}
}

// watchCases tests [schedule.Watcher].
func watchCases() []testCase {
	return []testCase{
		{
			Area: "watch", Name: "woken by others",
			Explain: "A sleeping listener is woken when any process makes something due earlier.",
			Needs:   []need{needsWatch},
			Run: func(w *world) {
				listening, other := w.Open(), w.Open()
				woken := make(chan struct{}, 1000)
				stop := offers[schedule.Watcher](w, listening).Watch(func() {
					select {
					case woken <- struct{}{}:
					default:
					}
				})
				defer stop()
				heard := func(what string, act func()) {
					w.Helper()
					w.Until("a word of "+what, func() bool { // A wake-up is a hint; the first may be missing.
						act()
						select {
						case <-woken:
							return true
						case <-time.After(w.Slack):
							return false
						}
					})
				}
				heard("an entry that was added", func() { w.overdue(other) })
				heard("a tick that was given back", func() {
					k := w.due(other, 1).Ticks[0]
					w.claim(other, "a", long, k, time.Time{})
					w.renew(other, "a", 0, k)
				})
				if w.h.Promises.Change {
					e := w.entry(w.now(other).Add(time.Hour))
					w.add(other, e)
					heard("an entry that was changed", func() {
						e = w.variant(e, e.Next.Add(-time.Minute))
						w.change(other, schedule.Change{Entries: []schedule.Entry{e}}, schedule.EntryChanged)
					})
				}
				if w.h.Promises.Pause {
					e := w.overdue(other)
					heard("an entry that was resumed", func() {
						w.pause(other, e.ID)
						w.resume(other, e.ID, w.now(other))
					})
				}
				stop()
				stop()
			},
		},
		{
			Area: "watch", Name: "a wrapper keeps every capability",
			Explain: "Users wrap stores to count or log calls. The optional interfaces of a store must be found through a wrapper with Unwrap.",
			Run: func(w *world) {
				s := w.Open()
				suite.Keeps(w, s, wrapper{s}, suite.CapabilityOf[schedule.Lister](), suite.CapabilityOf[schedule.Pauser](),
					suite.CapabilityOf[schedule.Watcher](), suite.CapabilityOf[schedule.Repairer](), suite.CapabilityOf[schedule.Changer](),
					suite.CapabilityOf[schedule.Named]())
			},
		},
		{
			Area: "watch", Name: "promised",
			Explain: "Each optional interface of a store must be promised, so that the suite tests it.",
			Run: func(w *world) {
				s := w.Open()
				offered := map[string][2]bool{}
				_, lists := capability.As[schedule.Lister](s)
				offered["List"] = [2]bool{lists, w.h.Promises.List}
				_, pauses := capability.As[schedule.Pauser](s)
				offered["Pause"] = [2]bool{pauses, w.h.Promises.Pause}
				_, watches := capability.As[schedule.Watcher](s)
				offered["Watch"] = [2]bool{watches, w.h.Promises.Watch}
				_, repairs := capability.As[schedule.Repairer](s)
				offered["Repair"] = [2]bool{repairs, w.h.Promises.Repair}
				_, transactions := capability.As[schedule.TxAdder](s)
				offered["Transactions"] = [2]bool{transactions, w.h.Promises.Transactions}
				_, changes := capability.As[schedule.Changer](s)
				offered["Change"] = [2]bool{changes, w.h.Promises.Change}
				for name, is := range offered {
					if is[0] != is[1] {
						w.Errorf("%s: offered %v, promised %v", name, is[0], is[1])
					}
				}
				if n, ok := capability.As[schedule.Named](s); ok && schedule.CheckName(n.Name()) != nil {
					w.Errorf("the schedule's name is %q", n.Name())
				}
			},
		},
	}
}

// wrapper wraps a store as users do.
type wrapper struct{ schedule.Store }

// Unwrap returns the wrapped store, so that capability.As finds its optional interfaces.
func (w wrapper) Unwrap() any { return w.Store }

// repairCases tests [schedule.Repairer].
func repairCases() []testCase {
	return []testCase{
		{
			Area: "repair", Name: "an entry that nobody would run",
			Explain: "An entry that another program lost between two steps is found and repaired; an entry that is claimed, paused or due is not.",
			Needs:   []need{needsRepair, needsPause},
			Run: func(w *world) {
				s := w.Open()
				repairer := offers[schedule.Repairer](w, s)
				lost, due, claimed, paused := w.overdue(s), w.entry(w.now(s)), w.entry(w.now(s)), w.entry(w.now(s))
				w.add(s, due, claimed, paused)
				w.claim(s, "a", w.lease, w.waitDue(s, claimed.ID), time.Time{})
				w.pause(s, paused.ID)
				w.stray(s, lost.ID)
				ctx, cancel := w.Ctx()
				defer cancel()
				astray, err := repairer.Unscheduled(ctx)
				w.Must(err, "Unscheduled")
				if len(astray) != 1 || astray[0].ID != lost.ID || !bytes.Equal(astray[0].Payload, lost.Payload) {
					w.Fatalf("astray are %+v", astray)
				}
				next := w.now(s).Add(-time.Minute)
				for _, e := range []schedule.Entry{due, paused, {ID: "nobody"}, lost, lost} {
					repaired, err := repairer.Repair(ctx, e.ID, next)
					w.Must(err, "Repair")
					if want := e.ID == lost.ID && len(astray) == 1; repaired != want {
						w.Errorf("%.8s was repaired: %v, want %v", e.ID, repaired, want)
					}
					if e.ID == lost.ID {
						astray = nil // it has a due time now, so a second Repair must return false
					}
				}
				w.wantDue(w.due(s, 1).Ticks[0], next, "an entry that was repaired")
			},
		},
	}
}
