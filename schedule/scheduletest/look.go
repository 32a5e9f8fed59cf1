package scheduletest

import (
	"bytes"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/schedule"
)

// offers returns the optional interface, and fails the case if the adapter does not have what it promises.
func offers[T any](w *world, s Store) T {
	w.Helper()
	t, ok := capability.As[T](s)
	if !ok {
		w.Fatalf("%T does not have what it promises", s)
	}
	return t
}

func (w *world) get(s Store, id string) schedule.Entry {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	e, err := offers[schedule.Lister](w, s).Get(ctx, id)
	w.Must(err, "Get")
	return e
}

func (w *world) pause(s Store, id string) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(offers[schedule.Pauser](w, s).Pause(ctx, id), "Pause")
}

func (w *world) resume(s Store, id string, next time.Time) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(offers[schedule.Pauser](w, s).Resume(ctx, id, next), "Resume")
}

// list reads all pages.
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

func listCases() []testCase {
	return []testCase{
		{
			Area: "list", Name: "an entry by its id",
			Explain: "Get shows an entry as it is: its bytes, its time, what it carries and its last tick.",
			Needs:   []need{needsList},
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				got := w.get(w.Open(), e.ID)
				if got.ID != e.ID || !bytes.Equal(got.Payload, e.Payload) || got.Next.UnixMilli() != e.Next.UnixMilli() {
					w.Errorf("got %+v", got)
				}
				k := w.one(s, e.ID)
				next := w.now(s).Add(time.Hour)
				if !w.try(s, "a", long, schedule.Claim{Tick: k, Next: next, Remember: true})[0] {
					w.Fatal("not claimed")
				}
				w.finish(s, "a", schedule.Finish{Tick: k, State: []byte("x")})
				got = w.get(s, e.ID)
				if got.Next.UnixMilli() != next.UnixMilli() || got.Last.UnixMilli() != k.Due.UnixMilli() || string(got.State) != "x" {
					w.Errorf("after a run: %+v", got)
				}
				once := w.overdue(s)
				w.claim(s, "a", long, w.one(s, once.ID), time.Time{})
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
			Explain: "List shows every entry that is there during all of it, whatever the size of its pages.",
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

func pauseCases() []testCase {
	return []testCase{
		{
			Area: "pause", Name: "not while it is paused",
			Explain: "A paused entry is not due, keeps all else, and goes on with the time that it is given.",
			Needs:   []need{needsPause, needsList},
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				w.pause(w.Open(), e.ID)
				w.pause(s, e.ID)
				w.none(s, "a paused entry")
				if b := w.due(s, 1); !b.Next.IsZero() {
					w.Errorf("a paused entry has a time, %v", b.Next)
				}
				w.there(s, e, "a paused entry")
				if got := w.get(s, e.ID); !got.Paused || !got.Next.IsZero() {
					w.Errorf("a paused entry is shown as %+v", got)
				}
				if got := w.list(s, 10)[e.ID]; !got.Paused {
					w.Errorf("a paused entry is listed as %+v", got)
				}
				next := w.now(s).Add(-time.Second)
				w.resume(s, e.ID, next)
				w.wantDue(w.one(s, e.ID), next, "an entry that goes on")
				w.resume(s, e.ID, next.Add(time.Hour))
				w.wantDue(w.one(s, e.ID), next, "an entry that was resumed twice")
				if w.get(s, e.ID).Paused {
					w.Error("it is still paused")
				}
			},
		},
		{
			Area: "pause", Name: "while it is run",
			Explain: "What is claimed goes on; no claim gives a paused entry a time; who takes over from the dead does not either.",
			Needs:   []need{needsPause},
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				k := w.one(s, e.ID)
				w.claim(s, "dead", w.lease, k, w.now(s).Add(time.Hour))
				w.pause(s, e.ID)
				again := w.again(s, e.ID)
				w.claim(s, "b", long, again, w.now(s))
				w.finish(s, "b", schedule.Finish{Tick: again, State: []byte("x")})
				if b := w.due(s, 10); len(b.Ticks) > 0 || !b.Next.IsZero() {
					w.Errorf("a paused entry is due: %v, next at %v", show(b.Ticks), b.Next)
				}
				w.resume(s, e.ID, w.now(s))
				if k := w.again(s, e.ID); string(k.State) != "x" {
					w.Errorf("it carries %q", k.State)
				}
			},
		},
		{
			Area: "pause", Name: "removed while it is paused",
			Explain: "Removing takes the pause along: the same entry, added anew, is due.",
			Needs:   []need{needsPause},
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				w.pause(s, e.ID)
				w.remove(s, e.ID)
				w.add(s, e)
				w.one(s, e.ID)
				ctx, cancel := w.Ctx()
				defer cancel()
				p := offers[schedule.Pauser](w, s)
				w.WantIs(p.Pause(ctx, "nobody"), schedule.ErrNotFound, "Pause of an entry that does not exist")
				w.WantIs(p.Resume(ctx, "nobody", w.now(s)), schedule.ErrNotFound, "Resume of an entry that does not exist")
			},
		},
	}
}

func watchCases() []testCase {
	return []testCase{
		{
			Area: "watch", Name: "woken by others",
			Explain: "A listener that sleeps until the time it was told hears of what comes earlier, from any process.",
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
					w.Until("a word of "+what, func() bool { // it is a hint, and may be missing at first
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
			Explain: "Users wrap stores to count or to log. What the store can do besides its port is found through a wrapper that has Unwrap.",
			Run: func(w *world) {
				s := w.Open()
				suite.Keeps(w, s, wrapper{s}, suite.CapabilityOf[schedule.Lister](), suite.CapabilityOf[schedule.Pauser](),
					suite.CapabilityOf[schedule.Watcher](), suite.CapabilityOf[schedule.Mender](), suite.CapabilityOf[schedule.Named]())
			},
		},
		{
			Area: "watch", Name: "promised",
			Explain: "What a store offers beyond the port is promised, so that no capability goes untested.",
			Run: func(w *world) {
				s := w.Open()
				offered := map[string][2]bool{}
				_, lists := capability.As[schedule.Lister](s)
				offered["List"] = [2]bool{lists, w.h.Promises.List}
				_, pauses := capability.As[schedule.Pauser](s)
				offered["Pause"] = [2]bool{pauses, w.h.Promises.Pause}
				_, watches := capability.As[schedule.Watcher](s)
				offered["Watch"] = [2]bool{watches, w.h.Promises.Watch}
				_, mends := capability.As[schedule.Mender](s)
				offered["Mend"] = [2]bool{mends, w.h.Promises.Mend}
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

// wrapper is one as users write it.
type wrapper struct{ schedule.Store }

func (w wrapper) Unwrap() any { return w.Store }

func mendCases() []testCase {
	return []testCase{
		{
			Area: "mend", Name: "an entry that nobody would run",
			Explain: "What another program lost between two steps is found, and gets a time again; what is claimed, paused or due is not lost.",
			Needs:   []need{needsMend, needsPause},
			Run: func(w *world) {
				s := w.Open()
				mender := offers[schedule.Mender](w, s)
				lost, due, claimed, paused := w.overdue(s), w.entry(w.now(s)), w.entry(w.now(s)), w.entry(w.now(s))
				w.add(s, due, claimed, paused)
				w.claim(s, "a", w.lease, w.again(s, claimed.ID), time.Time{})
				w.pause(s, paused.ID)
				w.stray(s, lost.ID)
				ctx, cancel := w.Ctx()
				defer cancel()
				astray, err := mender.Astray(ctx)
				w.Must(err, "Astray")
				if len(astray) != 1 || astray[0].ID != lost.ID || !bytes.Equal(astray[0].Payload, lost.Payload) {
					w.Fatalf("astray are %+v", astray)
				}
				next := w.now(s).Add(-time.Minute)
				for _, e := range []schedule.Entry{due, paused, {ID: "nobody"}, lost, lost} {
					mended, err := mender.Mend(ctx, e.ID, next)
					w.Must(err, "Mend")
					if want := e.ID == lost.ID && len(astray) == 1; mended != want {
						w.Errorf("%.8s was mended: %v, want %v", e.ID, mended, want)
					}
					if e.ID == lost.ID {
						astray = nil // the second time it has one
					}
				}
				w.wantDue(w.due(s, 1).Ticks[0], next, "an entry that was mended")
			},
		},
	}
}
