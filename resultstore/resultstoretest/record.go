package resultstoretest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// recordCases returns the cases of the content of records.
func recordCases() []testCase {
	return []testCase{
		{
			Area: "record", Name: "every field makes the round trip",
			Explain: "A submitter knows only the record of its task. All texts, bytes and times must return unchanged, except that times are cut to milliseconds and TTL is left out.",
			Needs:   []need{needsRecords},
			Run: func(w *world) {
				saver, loader := w.Open(), w.Open()
				rapid.Check(w.TB, func(t *rapid.T) {
					want := record(w.id(), w.node("n")).Draw(t, "record")
					w.save(saver, want)
					if diff := diffRecord(want, w.load(loader, want.ID)); diff != "" {
						t.Fatalf("the record changed (-saved +loaded):\n%s", diff)
					}
				})
			},
		},
		{
			Area: "record", Name: "visible to every Load that begins after Save returned",
			Explain: "Every Load that begins after Save returned sees the record: the consumer acknowledges the task next, and could not make the record again.",
			Needs:   []need{needsRecords},
			Run: func(w *world) {
				a, b := w.Open(), w.Open()
				for i := range 50 {
					r := with(w.succeeded(""), func(r *resultstore.Record) { r.Retries = i })
					w.save(a, r)
					w.wantLoad(b, r, "record %d, loaded in another process right after Save", i)
					w.wantLoad(a, r, "record %d, loaded in the same process right after Save", i)
				}
			},
		},
		{
			Area: "record", Name: "every id that is one",
			Explain: "An id is 1 to 128 bytes of visible ASCII. Separators, wildcards and quotes that are special to a server are ordinary bytes in it, and two different ids never share a record.",
			Needs:   []need{needsRecords},
			Run: func(w *world) {
				s := w.Open()
				var all []resultstore.Record
				for _, tail := range []string{"a", "A", "a.b", "a/b", "a:b", "*", ">", "#", "%", "_", "$1", "'--", `"`, `\`, "{x}", "[x]", "a,b", "~!@^&()+=|;?<`", "..", "-"} {
					all = append(all, with(w.succeeded(""), func(r *resultstore.Record) { r.ID = task.ID(w.h.Prefix + tail); r.Correlation = tail }))
				}
				long := strings.Repeat("x", 127-len(w.h.Prefix))
				for _, end := range []string{"y", "z"} {
					all = append(all, with(w.succeeded(""), func(r *resultstore.Record) { r.ID = task.ID(w.h.Prefix + long + end); r.Correlation = end }))
				}
				w.save(s, all...)
				for _, r := range all {
					w.wantLoad(s, r, "id %q", r.ID)
				}
				for _, r := range all {
					w.remove(s, r.ID)
					w.wantNone(s, r.ID, "Load(%q) after its Delete", r.ID)
				}
			},
		},
		{
			Area: "record", Name: "what is no id is refused",
			Explain: "Ids become keys, subjects and parameters, so an invalid id is refused.",
			Run: func(w *world) {
				s := w.Open()
				w.listen(s, w.node("n"))
				for _, id := range []task.ID{"", "a b", "a\n", "ä", "a\x00", "\x7f", task.ID(strings.Repeat("x", 129))} {
					r := with(w.succeeded(w.node("n")), func(r *resultstore.Record) { r.ID = id })
					if w.trySave(s, r) == nil {
						w.Errorf("Save took the id %q", id)
					}
					ctx, cancel := w.Ctx()
					if _, err := s.Load(ctx, id); w.Clean(err) == nil {
						w.Errorf("Load took the id %q", id)
					}
					cancel()
				}
			},
		},
		{
			Area: "record", Name: "what is no recorded state is refused",
			Explain: "State is terminal, StateRetrying, StateAwaiting, StateRequeued or StateStarted. With a record in any other state its submitter would wait forever.",
			Run: func(w *world) {
				s := w.Open()
				w.listen(s, w.node("n"))
				for _, state := range []task.State{"", task.StatePending, "SUCCESS", "succeeded "} {
					r := with(w.succeeded(w.node("n")), func(r *resultstore.Record) { r.State = state })
					if w.trySave(s, r) == nil {
						w.Errorf("Save took the state %q", state)
					}
				}
			},
		},
		{
			Area: "record", Name: "slices are not shared",
			Explain: "A store keeps no reference to the slices of a record after Save returned, and returned slices belong to the caller: callers reuse buffers at once.",
			Needs:   []need{needsRecords},
			Run: func(w *world) {
				s := w.Open()
				r := with(w.succeeded(""), func(r *resultstore.Record) { r.Children = []task.ID{"a", "b"} })
				want := with(r, func(r *resultstore.Record) { r.Result, r.Children = bytes.Clone(r.Result), slices.Clone(r.Children) })
				w.save(s, r)
				clear(r.Result)
				clear(r.Children)
				got := w.load(s, r.ID)
				if diff := diffRecord(want, got); diff != "" {
					w.Fatalf("the record changed with the slice given to Save (-saved +loaded):\n%s", diff)
				}
				clear(got.Result)
				clear(got.Children)
				w.wantLoad(s, want, "after the slice of an earlier Load was changed")
			},
		},
		{
			Area: "record", Name: "a result of 1 MiB",
			Explain: "Tasks decide how large results are. A common limit of servers, such as 64 KiB for a column or a line, must not apply.",
			Needs:   []need{needsRecords},
			Run: func(w *world) {
				a, b := w.Open(), w.Open()
				r := with(w.succeeded(""), func(r *resultstore.Record) { r.Result = noise(1 << 20) })
				w.save(a, r)
				w.wantLoad(b, r, "a large result")
			},
		},
		{
			Area: "record", Name: "a result that is too large",
			Explain: "A record that is too large is refused with ErrTooLarge and stores nothing, so that the consumer can save a failure instead.",
			Needs:   []need{needsMaxResult},
			Run: func(w *world) {
				s := w.Open()
				w.listen(s, w.node("n"))
				r := with(w.succeeded(w.node("n")), func(r *resultstore.Record) { r.Result = noise(w.h.Promises.MaxResult + 1) })
				w.WantIs(w.trySave(s, r), resultstore.ErrTooLarge, "Save of MaxResult+1 bytes")
				if w.h.Promises.RepliesOnly {
					return
				}
				w.wantNone(s, r.ID, "Load of what was refused")
				r.Result = r.Result[1:]
				w.save(s, r)
				w.wantLoad(s, r, "a result of exactly MaxResult bytes")
			},
		},
		{
			Area: "record", Name: "no record",
			Explain: "Load returns ErrNotFound if no record exists: a submitter tells a waiting task from a failing store by it.",
			Run: func(w *world) {
				s := w.Open()
				w.wantNone(s, w.id(), "Load of what was never saved")
			},
		},
		{
			Area: "record", Name: "Delete removes",
			Explain: "Delete removes the record of a task with its token. It returns nil if no record exists, so that a repeated clean-up succeeds.",
			Needs:   []need{needsRecords},
			Run: func(w *world) {
				a, b := w.Open(), w.Open()
				r, other := with(w.succeeded(""), func(r *resultstore.Record) { r.Generation = 5 }), w.succeeded("")
				w.save(a, r, other)
				w.remove(b, r.ID)
				w.wantNone(a, r.ID, "Load after Delete in another process")
				w.remove(b, r.ID)
				w.remove(b, w.id())
				w.wantLoad(a, other, "the record of another task after Delete")
				again := with(r, func(r *resultstore.Record) { r.Generation = 1 })
				w.save(a, again)
				w.wantLoad(b, again, "a record saved after Delete, with an older token than the deleted one")
			},
		},
		{
			Area: "record", Name: "many at a time",
			Explain: "All methods are safe for concurrent use.",
			Needs:   []need{needsRecords},
			Run: func(w *world) {
				s := w.Open()
				const goroutines, each = 16, 25
				fails := make(chan string, goroutines)
				for g := range goroutines {
					rs := make([]resultstore.Record, each)
					for i := range rs {
						rs[i] = with(w.succeeded(""), func(r *resultstore.Record) { r.Result = []byte(fmt.Sprintf("%d-%d", g, i)) })
					}
					go func() {
						ctx, cancel := w.Ctx()
						defer cancel()
						for _, r := range rs {
							if err := s.Save(ctx, r); err != nil {
								fails <- fmt.Sprintf("Save: %v", w.Clean(err))
								return
							}
							got, err := s.Load(ctx, r.ID)
							if diff := diffRecord(r, got); err != nil || diff != "" {
								fails <- fmt.Sprintf("Load: %v (-saved +loaded):\n%s", w.Clean(err), diff)
								return
							}
						}
						fails <- ""
					}()
				}
				for range goroutines {
					if f := suite.Ends(w.World, fails, "a goroutine that saves and loads"); f != "" {
						w.Error(f)
					}
				}
			},
		},
	}
}

// noise returns n bytes that do not compress and hold every value.
func noise(n int) []byte {
	b := make([]byte, n)
	x := uint64(time.Second)
	for i := range b {
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 56)
	}
	return b
}
