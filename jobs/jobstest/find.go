package jobstest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// herd saves jobs that differ in all that a Query asks for.
func (w *world) herd(s jobs.Store) []jobs.Row {
	w.Helper()
	template := w.job(s, "x")
	var list []jobs.Row
	for i := range 60 {
		j := template
		j.Name = []string{"a", "A", "a*", "b"}[i%4]
		j.State = []jobs.State{jobs.Queued, jobs.Waiting, jobs.Running, jobs.Failed, jobs.Finished}[i%5]
		j.SequenceKey = []string{"", "k", "K"}[i%3]
		j.Parent = jobs.ID(i % 7 * 100)
		if j.Queue = []string{"", "q", "Q", "q"}[i%4]; i%8 > 3 {
			j.Key, j.UniqueKey = []string{"k", "K", ""}[i%3], []string{"k", "", "u"}[i%3]
		}
		if i%5 > 2 { // the last ones first
			j.Expires = template.Created.Add(-time.Duration(i/10) * time.Second)
		}
		list = append(list, j)
	}
	return w.save(s, list...)
}

// filter is what Find should answer for q, without Due and Line.
func filter(list []jobs.Row, q *Query) []jobs.Row {
	var out []jobs.Row
	for _, j := range list { // in the order of ids
		if j.ID > q.After && (q.IDs == nil || slices.Contains(q.IDs, j.ID)) && (q.Name == "" || q.Name == j.Name) &&
			(q.States == nil || slices.Contains(q.States, j.State)) && (q.SequenceKey == "" || q.SequenceKey == j.SequenceKey) &&
			(q.Parent == 0 || q.Parent == j.Parent) && (q.Queue == "" || q.Queue == j.Queue) && (q.UniqueKey == "" || q.UniqueKey == j.UniqueKey) &&
			(q.Key == "" || q.Key == j.Key) {
			out = append(out, j)
		}
	}
	if q.Limit > 0 {
		out = out[:min(q.Limit, len(out))]
	}
	return out
}

func findCases() []testCase {
	return []testCase{
		{
			Area: "find", Name: "filters",
			Explain: "Each method finds what it says: jobs of ids, of an exact name, key, unique key, sequence, queue or parent, and all of them. A page has ids above After, one of the states, and the first Limit; the answer is in the order of ids.",
			Run: func(w *world) {
				s := w.Open()
				list := w.herd(s)
				some := []jobs.ID{list[50].ID, list[3].ID, 4711, list[3].ID, list[20].ID, -1, 0}
				queries := []Query{
					{},
					{Page: jobstore.Page{Limit: 1}},
					{Page: jobstore.Page{Limit: 1000}},
					{Page: jobstore.Page{After: list[9].ID}},
					{Page: jobstore.Page{After: list[59].ID}},
					{Page: jobstore.Page{After: math.MaxInt64}},
					{IDs: some},
					{IDs: []jobs.ID{}},
					{Name: "a"},
					{Name: "a*"},
					{Page: jobstore.Page{Limit: 2}, Name: "A"},
					{Name: "nobody"},
					{Page: jobstore.Page{After: list[8].ID, Limit: 3}, Name: "a"},
					{Page: jobstore.Page{States: []jobs.State{jobs.Failed}}},
					{Page: jobstore.Page{States: []jobs.State{jobs.Queued, jobs.Running, jobs.Queued}}},
					{Page: jobstore.Page{States: []jobs.State{}}},
					{Page: jobstore.Page{States: []jobs.State{jobs.Cancelled}}},
					{SequenceKey: "k"},
					{Page: jobstore.Page{States: []jobs.State{jobs.Waiting}, Limit: 1}, SequenceKey: "K"},
					{Page: jobstore.Page{States: []jobs.State{jobs.Queued, jobs.Waiting}, After: list[10].ID}, SequenceKey: "k"},
					{SequenceKey: "nothing"},
					{Parent: 300},
					{Page: jobstore.Page{States: []jobs.State{jobs.Failed, jobs.Finished}}, Parent: 100},
					{Parent: 4711},
					{Queue: "q"},
					{Page: jobstore.Page{Limit: 3}, Queue: "Q"},
					{Page: jobstore.Page{After: list[20].ID, Limit: 4}, Queue: "q"},
					{Page: jobstore.Page{States: []jobs.State{jobs.Running}}, Queue: "q"},
					{Page: jobstore.Page{States: []jobs.State{jobs.Running, jobs.Queued, jobs.Failed}, After: list[10].ID, Limit: 5}, Queue: "q"},
					{Queue: "nothing"},
					{Name: "b", Key: "k"},
					{Page: jobstore.Page{States: []jobs.State{jobs.Queued, jobs.Running}}, Name: "b", Key: "K"},
					{Page: jobstore.Page{After: list[20].ID, Limit: 1}, Name: "A", Key: "k"},
					{Name: "b", Key: "nothing"},
					{Name: "b", UniqueKey: "u"},
					{Page: jobstore.Page{Limit: 1}, Name: "b", UniqueKey: "k"},
					{Name: "b", UniqueKey: "K"},
					{Page: jobstore.Page{After: list[20].ID, Limit: 2}, Parent: 300},
					{Page: jobstore.Page{States: []jobs.State{}}, SequenceKey: "k"},
					{Page: jobstore.Page{States: []jobs.State{jobs.Running, jobs.Running}, Limit: 2}, SequenceKey: "k"},
					{Page: jobstore.Page{After: math.MaxInt64}, Name: "b", Key: "k"},
				}
				for i, q := range queries {
					want := filter(list, &q)
					found := w.find(s, q)
					w.wantIDs(found, want, "query %d, %+v", i, q)
					for k := range min(len(found), len(want)) {
						w.wantSame(found[k], want[k], "query %d", i)
					}
				}
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error { // the same in a transaction that locks
					for i, q := range queries {
						found, err := q.Find(ctx, tx)
						if err != nil {
							return fmt.Errorf("query %d: %w", i, err)
						}
						w.wantIDs(found, filter(list, &q), "query %d in Update", i)
					}
					return nil
				})
			},
		},
		{
			Area: "find", Name: "after a change",
			Explain: "A job is found by what it is now, not by what it was.",
			Run: func(w *world) {
				s := w.Open()
				list := w.save(s, w.job(s, "a"), w.job(s, "a"), w.job(s, "b"))
				changed := list[0]
				changed.Name, changed.SequenceKey, changed.Parent, changed.State = "b", "k", 9, jobs.Failed
				changed.Queue, changed.Key, changed.UniqueKey, changed.Expires = "q", "k", "u", changed.Created
				w.save(s, changed)
				for _, c := range []struct {
					q    Query
					want []jobs.Row
				}{
					{Query{Name: "a"}, list[1:2]},
					{Query{Name: "b"}, []jobs.Row{list[0], list[2]}},
					{Query{SequenceKey: "k"}, list[:1]},
					{Query{Parent: 9}, list[:1]},
					{Query{Queue: "q"}, list[:1]},
					{Query{Name: "b", Key: "k"}, list[:1]},
					{Query{Name: "a", Key: "k"}, nil},
					{Query{Name: "b", UniqueKey: "u"}, list[:1]},
					{Query{Page: jobstore.Page{States: []jobs.State{jobs.Queued}}}, list[1:]},
				} {
					w.wantIDs(w.find(s, c.q), c.want, "%+v", c.q)
				}
				changed.SequenceKey, changed.Parent, changed.Queue, changed.Key, changed.UniqueKey, changed.Expires = "", 0, "", "", "", time.Time{}
				w.save(s, changed)
				for what, q := range map[string]Query{
					"key": {SequenceKey: "k"}, "parent": {Parent: 9}, "queue": {Queue: "q"}, "answer's key": {Name: "b", Key: "k"},
					"unique key": {Name: "b", UniqueKey: "u"},
				} {
					w.wantIDs(w.find(s, q), nil, "the %s that was taken away", what)
				}
			},
		},
		{
			Area: "find", Name: "locks what it finds",
			Explain: "Jobs locks the jobs it returns, and waits for those that are locked: what a transaction does with them is not overtaken.",
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				list := ids(w.save(s, w.job(s, "tick"), w.job(s, "tick"), w.job(s, "tick")))
				all(6, func(i int) {
					from := []jobs.Store{s, other}[i%2]
					for range 5 {
						w.try(from, func(ctx context.Context, tx jobstore.Tx) error {
							found, err := tx.Jobs(ctx, list...)
							if err != nil {
								return err
							}
							if len(found) != 3 {
								return fmt.Errorf("%d jobs were found, not 3", len(found))
							}
							for i := range found {
								found[i].Run++
							}
							return tx.Save(ctx, pointers(found)...)
						})
					}
				})
				for _, j := range w.find(s, Query{}) {
					if j.Run != 30 {
						w.Errorf("30 transactions added one each, and came to %d", j.Run)
					}
				}
			},
		},
		{
			Area: "find", Name: "waits for what is locked",
			Explain: "Jobs waits for jobs that another transaction has locked, and returns what they have become.",
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				for _, c := range []struct {
					becomes jobs.State
					found   int
				}{{jobs.Running, 1}, {jobs.Queued, 1}, {jobs.Failed, 1}} {
					j := w.add(s, "a")
					ended := make(chan int, 1)
					started := false
					w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
						if err := edit(ctx, tx, j.ID, func(j *jobs.Row) { j.State = c.becomes; j.Run = 1 }); err != nil {
							return err
						}
						if started {
							return nil
						}
						started = true
						go func() {
							n := -1
							w.try(other, func(ctx context.Context, tx jobstore.Tx) error {
								found, err := tx.Jobs(ctx, j.ID)
								n = len(found)
								if n > 0 && (found[0].Run != 1 || found[0].State != c.becomes) {
									w.Errorf("a job was found as it was before")
								}
								return err
							})
							ended <- n
						}()
						select { // it may have to wait by now
						case n := <-ended:
							w.Errorf("%d jobs were found while they were locked", n)
							ended <- n
						case <-time.After(w.Quiet):
						}
						return nil
					})
					if n := suite.Ends(w.World, ended, "Find"); n != c.found {
						w.Errorf("%d jobs were found that had become %s, not %d", n, c.becomes, c.found)
					}
					w.update(s, func(ctx context.Context, tx jobstore.Tx) error { return tx.Delete(ctx, j.ID) })
				}
			},
		},
		{
			Area: "find", Name: "lists lock nothing",
			Explain: "What lists jobs waits for no other transaction, and shows what was on disk: a look whether a key is free holds up nobody.",
			Needs:   []need{needsParallel},
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				j := w.add(s, "a", func(j *jobs.Row) {
					j.SequenceKey, j.Key, j.UniqueKey, j.Queue, j.Parent, j.State = "k", "k", "k", "q", 7, jobs.Failed
				})
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
					if err := edit(ctx, tx, j.ID, func(j *jobs.Row) { j.Run = 1 }); err != nil {
						return err
					}
					return other.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
						for _, q := range []Query{
							{}, {Name: "a"}, {Name: "a", Key: "k"}, {Name: "a", UniqueKey: "k"}, {SequenceKey: "k"}, {Queue: "q"}, {Parent: 7},
						} {
							if found, err := only(q.Find(ctx, tx)); err != nil || found.Run != 0 {
								return fmt.Errorf("%+v: run %d, %w", q, found.Run, err)
							}
						}
						last, err := tx.LastOver(ctx, "a", "k")
						if err != nil || last == nil || last.Run != 0 {
							return fmt.Errorf("LastOver: %+v, %w", last, err)
						}
						return nil
					})
				})
			},
		},
		{
			Area: "find", Name: "the last one that is over",
			Explain: "LastOver returns the newest job of a name and a key that is FINISHED, FAILED or CANCELLED, and nil if there is none.",
			Run: func(w *world) {
				s := w.Open()
				add := func(name, key string, state jobs.State) jobs.Row {
					return w.add(s, name, func(j *jobs.Row) { j.Key, j.State = key, state })
				}
				want := func(what, name, key string, id jobs.ID) {
					w.Helper()
					w.view(s, func(ctx context.Context, tx jobstore.Tx) error {
						last, err := tx.LastOver(ctx, name, key)
						if err == nil && (id == 0) != (last == nil) || last != nil && last.ID != id {
							w.Errorf("%s: %+v, not job %d", what, last, id)
						}
						return err
					})
				}
				want("no job", "a", "k", 0)
				add("a", "k", jobs.Running)
				want("one that runs", "a", "k", 0)
				for _, state := range []jobs.State{jobs.Finished, jobs.Cancelled, jobs.Failed, jobs.Finished} {
					j := add("a", "k", state)
					add("a", "k", jobs.Queued)
					add("a", "other", jobs.Failed)
					add("b", "k", jobs.Failed)
					want("one that is "+string(state), "a", "k", j.ID)
				}
				want("no key", "a", "", 0)
				want("no name", "", "k", 0)
			},
		},
		{
			Area: "find", Name: "expired jobs",
			Explain: "ExpireJobs deletes the jobs that have expired, the first ones, at most limit, with their messages, and says how many; jobs that do not expire stay.",
			Run: func(w *world) {
				s := w.Open()
				at := w.now(s)
				var list []jobs.Row
				for _, seconds := range []int{2, -3, -1, 0, -2} {
					list = append(list, w.add(s, "a", func(j *jobs.Row) {
						j.State, j.Expires, j.Message = jobs.Failed, at.Add(time.Duration(seconds)*time.Second), `{"m":1}`
					}))
				}
				list = append(list, w.add(s, "a", func(j *jobs.Row) { j.State = jobs.Failed }))
				expire := func(limit, n int, left ...jobs.Row) {
					w.Helper()
					got := 0
					w.update(s, func(ctx context.Context, tx jobstore.Tx) (err error) {
						got, err = tx.ExpireJobs(ctx, at, limit)
						return err
					})
					if got != n {
						w.Errorf("%d jobs have expired, not %d", got, n)
					}
					w.wantIDs(w.find(s, Query{}), left, "what is left of %d", n)
				}
				expire(2, 2, list[0], list[2], list[3], list[5])
				expire(2, 2, list[0], list[5])
				expire(2, 0, list[0], list[5])
				w.view(s, func(ctx context.Context, tx jobstore.Tx) error {
					left, err := tx.Messages(ctx, ids(list)...)
					if len(left) != 1 || left[list[0].ID] == nil {
						w.Errorf("messages are left of %d jobs", len(left))
					}
					return err
				})
			},
		},
		{
			Area: "find", Name: "expired jobs that are locked",
			Explain: "ExpireJobs passes over jobs that another transaction has locked.",
			Needs:   []need{needsParallel},
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				at := w.now(s)
				over := func(j *jobs.Row) { j.State, j.Expires = jobs.Failed, at.Add(-time.Second) }
				held := w.add(s, "a", over)
				w.add(s, "a", over)
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
					if _, err := tx.Get(ctx, held.ID); err != nil {
						return err
					}
					return other.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
						_, err := tx.ExpireJobs(ctx, at, 9)
						return err
					})
				})
				w.wantIDs(w.find(s, Query{}), []jobs.Row{held}, "what is left")
			},
		},
		{
			Area: "find", Name: "hostile texts",
			Explain: "What a Query asks for is text and no code: a store answers, and finds nothing, or refuses it.",
			Run: func(w *world) {
				s := w.Open()
				j := w.add(s, "x")
				for _, text := range []string{"' OR 1=1 --", `" OR ""="`, "%", "_", "*", "x' ; DROP TABLE jobs; --", strings.Repeat("x", 100_000), "x\x00", "\xff\xfe", "$1", "?"} {
					for what, q := range map[string]Query{
						"name": {Name: text}, "key": {SequenceKey: text}, "state": {Page: jobstore.Page{States: []jobs.State{jobs.State(text)}}}, "queue": {Queue: text},
						"answer's key": {Name: "x", Key: text}, "unique key": {Name: "x", UniqueKey: text},
						"line": {Page: jobstore.Page{Limit: 1}, Line: &jobs.Line{Queue: text, State: jobs.Queued}}, "line's state": {Page: jobstore.Page{Limit: 1}, Line: &jobs.Line{Queue: "q", State: jobs.State(text)}},
						"due name": {Page: jobstore.Page{Limit: 1}, Due: &jobs.Due{Selector: jobs.Selector{Names: []string{text}}}},
					} {
						var found []jobs.Row
						ctx, cancel := w.Ctx()
						err := s.View(ctx, func(ctx context.Context, tx jobstore.Tx) (err error) {
							found, err = q.Find(ctx, tx)
							return err
						})
						cancel()
						if err != nil {
							w.WantIs(err, jobs.ErrBadJob, "Find by the %s %.30q", what, text)
						}
						w.wantIDs(found, nil, "Find by the %s %.30q", what, text)
					}
				}
				w.wantSame(w.get(s, j.ID), j, "the job")
			},
		},
	}
}
