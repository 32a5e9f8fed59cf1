package scheduletest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
)

// addCases tests Store.Add.
func addCases() []testCase {
	return []testCase{
		{
			// Promises: W20.
			Area: "add", Name: "an entry as it was",
			Explain: "A store must not change the bytes of a payload: the entry's id is their hash, and other programs read them.",
			Run: func(w *world) {
				s := w.Open()
				payload := []byte(`{ "job" : "x\/y", "cron":"* * * * * * *","more":{"b":1,"a":[null]}, "args":["\u00e9", 9007199254740993] }`)
				e := schedule.Entry{ID: schedule.ID(payload), Payload: payload, Next: w.now(s).Add(-time.Second)}
				w.add(s, e)
				k := w.wantOne(w.Open(), e.ID)
				if !bytes.Equal(k.Payload, payload) {
					w.Errorf("the payload came back as %s", k.Payload)
				}
				w.wantDue(k, e.Next, "a tick that nobody has claimed")
				if k.Next.UnixMilli() != e.Next.UnixMilli() || k.Paused || k.State != nil || !k.Last.IsZero() || k.Owner != "" {
					w.Errorf("a new entry came back as %+v", k)
				}
			},
		},
		{
			// Promises: W15.
			Area: "add", Name: "the same content once",
			Explain: "Adding an existing entry must change nothing, not even its due time: programs add their entries at each start.",
			Run: func(w *world) {
				a, b := w.Open(), w.Open()
				e := w.overdue(a)
				later := e
				later.Next = w.now(a).Add(time.Hour)
				if w.tryAdd(b, later)[0] || w.tryAdd(a, e)[0] {
					w.Error("an entry that was there was added again")
				}
				w.wantDue(w.wantOne(b, e.ID), e.Next, "an entry that was added again with another time")
			},
		},
		{
			Area: "add", Name: "not while it is run",
			Explain: "An entry exists during its run too: adding it returns false and causes no further run.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				k := w.wantOne(s, e.ID)
				w.claim(s, "a", long, k, time.Time{})
				w.wantExists(w.Open(), e, "a one-shot that is being run")
				w.wantNone(s, "an entry that was added while it was run")
				w.finish(s, "a", schedule.Finish{Tick: k, Remove: true})
				w.wantGone(s, e, "a one-shot after its run")
			},
		},
		{
			Area: "add", Name: "many in one call",
			Explain: "Each entry of a call is added separately, with its own result at the same index.",
			Run: func(w *world) {
				s := w.Open()
				entries, now := make([]schedule.Entry, 1000), w.now(s)
				for i := range entries {
					entries[i] = w.entry(now.Add(-time.Hour + time.Duration(i)*time.Millisecond))
				}
				w.add(s, entries[100], entries[900])
				for i, added := range w.tryAdd(s, entries...) {
					if added == (i == 100 || i == 900) {
						w.Errorf("entry %d: added %v", i, added)
					}
				}
				if n := len(w.due(s, 2000).Ticks); n != len(entries) {
					w.Errorf("%d of %d are due", n, len(entries))
				}
				if n := len(w.tryAdd(s)); n != 0 {
					w.Errorf("adding nothing gave %d answers", n)
				}
			},
		},
		{
			Area: "add", Name: "one of many who add it",
			Explain: "If several processes add an entry at the same time, exactly one of them gets true.",
			Run: func(w *world) {
				stores := []Store{w.Open(), w.Open(), w.Open(), w.Open()}
				for range 10 {
					e := w.entry(w.now(stores[0]).Add(time.Hour))
					var added atomic.Int32
					var wg sync.WaitGroup
					for _, s := range stores {
						wg.Go(func() {
							if w.tryAdd(s, e)[0] {
								added.Add(1)
							}
						})
					}
					wg.Wait()
					if n := added.Load(); n != 1 {
						w.Fatalf("%d processes were told that the entry was new", n)
					}
				}
			},
		},
		{
			Area: "add", Name: "what is no entry",
			Explain: "An invalid entry is refused with ErrBadEntry, and nothing of the call is stored.",
			Run: func(w *world) {
				s := w.Open()
				good := w.entry(w.now(s).Add(time.Hour))
				bad := map[string]schedule.Entry{
					"without an id":       {Payload: good.Payload, Next: good.Next},
					"with a newline":      {ID: "a\nb", Payload: good.Payload, Next: good.Next},
					"with a long id":      {ID: strings.Repeat("x", schedule.MaxID+1), Payload: good.Payload, Next: good.Next},
					"without a payload":   {ID: "x", Next: good.Next},
					"with a large one":    {ID: "x", Payload: make([]byte, schedule.MaxPayload+1), Next: good.Next},
					"without a time":      {ID: "x", Payload: good.Payload},
					"in the year 123,456": {ID: "x", Payload: good.Payload, Next: time.Date(123_456, 1, 1, 0, 0, 0, 0, time.UTC)},
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				for name, e := range bad {
					_, err := s.Add(ctx, []schedule.Entry{good, e})
					w.WantIs(err, schedule.ErrBadEntry, "an entry %s", name)
				}
				w.wantGone(s, good, "an entry beside a bad one")
			},
		},
		{
			Area: "add", Name: "large payloads and odd ids",
			Explain: "An id may be any text, because other programs write to the store; a payload may have up to MaxPayload bytes.",
			Run: func(w *world) {
				s := w.Open()
				text := strings.Repeat("x", 600_000)
				ids := []string{"plain", `with "quotes" and \ and {}`, "blank inside", "größe/*?[a]", strings.Repeat("y", schedule.MaxID)}
				for i, id := range ids {
					payload := []byte(`{"args":["` + text + `"],"cron":"* * * * * * *","job":"x"}`)
					w.add(s, schedule.Entry{ID: id, Payload: payload, Next: w.now(s).Add(time.Duration(i-10) * time.Second)})
				}
				var found []string
				for _, k := range w.due(s, 10).Ticks {
					found = append(found, k.ID)
					if len(k.Payload) < 600_000 {
						w.Errorf("%q: a payload of %d bytes", k.ID, len(k.Payload))
					}
					w.claim(s, "a", long, k, time.Time{})
					w.finish(s, "a", schedule.Finish{Tick: k, Remove: true})
				}
				if !slices.Equal(found, ids) {
					w.Errorf("due: %q", found)
				}
				w.wantNone(s, "after all were done")
			},
		},
		{
			Area: "add", Name: "an entry that has lost its time",
			Explain: "Adding an entry again gives it a due time if it has neither a due time nor a claim and is not paused.",
			Run: func(w *world) {
				s := w.Open()
				lost, claimed, waits := w.overdue(s), w.entry(w.now(s).Add(-time.Minute)), w.entry(w.now(s).Add(time.Hour))
				w.stray(s, lost.ID)
				w.add(s, claimed, waits)
				k := w.wantOne(s, claimed.ID)
				w.claim(s, "a", long, k, time.Time{})
				again := []schedule.Entry{lost, claimed, waits}
				if w.h.Promises.Pause {
					paused := w.entry(w.now(s).Add(time.Hour))
					w.add(s, paused)
					w.pause(s, paused.ID)
					again = append(again, paused)
				}
				next := w.now(s).Add(-30 * time.Second)
				for i := range again {
					again[i].Next = next
				}
				for range 2 {
					if !all(w.tryAdd(w.Open(), again...), false) {
						w.Error("entries that are there were said to be new")
					}
				}
				w.wantDue(w.wantOne(s, lost.ID), next, "an entry that had lost its time")
				w.finish(s, "a", schedule.Finish{Tick: k})
				w.claim(s, "a", long, w.wantOne(s, lost.ID), w.now(s).Add(time.Hour))
				w.wantNone(s, "entries that had lost nothing")
			},
		},
		{
			Area: "add", Name: "at once, in their order",
			Explain: "Entries with AtOnce are a queue: they become due in the order in which they were added.",
			Run: func(w *world) {
				s := w.Open()
				next := w.now(s).Truncate(time.Second)
				var want []string
				entries := make([]schedule.Entry, 700)
				for i := range entries {
					payload := fmt.Appendf(nil, `{"args":[%d],"cron":%q,"job":"suite"}`, i, next.Format("2006 1 2 * 15 4 5"))
					entries[i] = schedule.Entry{ID: schedule.ID(payload), Payload: payload, Next: next, AtOnce: true}
					want = append(want, entries[i].ID)
				}
				w.add(s, entries[:20]...)
				for _, e := range entries[20:40] {
					w.add(w.Open(), e)
				}
				w.add(s, entries[40:]...)
				w.Until("all of them to be due", func() bool { return len(w.due(s, 1000).Ticks) == len(want) })
				var got []string
				for _, k := range w.due(w.Open(), 1000).Ticks {
					got = append(got, k.ID)
					if k.Due.Before(next) || k.Due.Sub(next) >= time.Second {
						w.Errorf("an entry for %v is due at %v", next, k.Due)
					}
				}
				if !slices.Equal(got, want) {
					w.Errorf("of %d entries for now the order was lost", len(want))
				}
			},
		},
	}
}
