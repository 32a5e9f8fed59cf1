package jobstest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// herd saves 60 jobs that differ in all fields of a Query, and returns them with their ids.
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

// filter returns the jobs of list that Find must return for q. list is in the order of ids; q has
// neither Due nor Line.
func filter(list []jobs.Row, q *Query) []jobs.Row {
	var out []jobs.Row
	for _, j := range list { // in the order of ids
		if j.ID > q.After && (q.IDs == nil || slices.Contains(q.IDs, j.ID)) && (q.Name == "" || q.Name == j.Name) &&
			(q.States == nil || slices.Contains(q.States, j.State)) && (q.Parent == 0 || q.Parent == j.Parent) &&
			(q.Queue == "" || q.Queue == j.Queue) && (q.Key == "" || q.Key == j.Key) && (q.Group == nil || member(&j, *q.Group)) {
			out = append(out, j)
		}
	}
	if q.Limit > 0 {
		out = out[:min(q.Limit, len(out))]
	}
	return out
}

// member reports whether a job belongs to a group, by the rules of [jobstore.Group]. It is written
// apart from Row.In, which it tests.
func member(j *jobs.Row, g jobstore.Group) bool {
	switch g.By {
	case jobstore.ByKey:
		return j.Name == g.Name && j.Key == g.Key
	case jobstore.ByUniqueKey:
		return j.Name == g.Name && j.UniqueKey == g.Key
	case jobstore.BySequence:
		return j.SequenceKey == g.Key
	}
	return j.Name == g.Name && j.Mock == (g.By == jobstore.ByMockName) && j.Queue == "" && (j.Expires.IsZero() || j.State == jobs.Failed)
}

// wantFirst checks, in a View and in an Update, that First returns ids[i] for groups[i]. An id of 0
// means that the group has no such job. A difference fails the case, which continues.
func (w *world) wantFirst(s jobs.Store, states []jobs.State, groups []jobstore.Group, ids ...jobs.ID) {
	w.Helper()
	want := map[jobstore.Group]jobs.ID{}
	for i, id := range ids {
		if id != 0 {
			want[groups[i]] = id
		}
	}
	ask := func(ctx context.Context, tx jobstore.Tx) error {
		w.Helper()
		first, err := tx.First(ctx, states, groups...)
		if !maps.Equal(first, want) {
			w.Errorf("the first jobs of states %v are %v, not %v", states, first, want)
		}
		return err
	}
	w.view(s, ask)
	w.update(s, ask)
}

// findCases returns the cases about the methods of Finder except Due and Line, and about
// ExpireJobs.
func findCases() []testCase {
	return []testCase{
		{
			Area: "find", Name: "filters",
			Explain: "Each method returns the jobs with the given ids, exact name, key, unique key, sequence, queue or parent, or all jobs. A page contains the first Limit jobs with ids above After in the given states, in the order of ids.",
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
					{Page: jobstore.Page{After: list[20].ID, Limit: 2}, Parent: 300},
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
				// the same in a transaction that locks
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
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
			Explain: "A job is found by its present fields, not by earlier ones.",
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
					{Query{Parent: 9}, list[:1]},
					{Query{Queue: "q"}, list[:1]},
					{Query{Name: "b", Key: "k"}, list[:1]},
					{Query{Name: "a", Key: "k"}, nil},
					{Query{Page: jobstore.Page{States: []jobs.State{jobs.Queued}}}, list[1:]},
				} {
					w.wantIDs(w.find(s, c.q), c.want, "%+v", c.q)
				}
				groups := []jobstore.Group{
					{By: jobstore.BySequence, Key: "k"}, {By: jobstore.ByKey, Name: "b", Key: "k"}, {By: jobstore.ByUniqueKey, Name: "b", Key: "u"},
				}
				w.wantFirst(s, nil, groups, list[0].ID, list[0].ID, list[0].ID)
				changed.SequenceKey, changed.Parent, changed.Queue, changed.Key, changed.UniqueKey, changed.Expires = "", 0, "", "", "", time.Time{}
				w.save(s, changed)
				w.wantFirst(s, nil, groups, 0, 0, 0)
				for what, q := range map[string]Query{"parent": {Parent: 9}, "queue": {Queue: "q"}, "answer's key": {Name: "b", Key: "k"}} {
					w.wantIDs(w.find(s, q), nil, "the %s that was taken away", what)
				}
			},
		},
		{
			Area: "find", Name: "locks what it finds",
			Explain: "Jobs locks the jobs that it returns and waits for locked ones, so that no other transaction changes them meanwhile.",
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
			Explain: "Jobs waits for jobs that another transaction has locked, and returns their new state.",
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
						select { // it may have to wait
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
			Explain: "Methods that list jobs wait for no other transaction and return committed jobs. So a check whether a key is free blocks no call.",
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
						for _, q := range []Query{{}, {Name: "a"}, {Name: "a", Key: "k"}, {Queue: "q"}, {Parent: 7}} {
							if found, err := only(q.Find(ctx, tx)); err != nil || found.Run != 0 {
								return fmt.Errorf("%+v: run %d, %w", q, found.Run, err)
							}
						}
						last, err := tx.LastOver(ctx, "a", "k")
						if err != nil || last == nil || last.Run != 0 {
							return fmt.Errorf("LastOver: %+v, %w", last, err)
						}
						for by := range jobstore.ByMockName {
							g := jobstore.Group{By: by, Name: "a", Key: "k"}
							if first, err := tx.First(ctx, nil, g); err != nil || by != jobstore.ByName && first[g] != j.ID {
								return fmt.Errorf("the first of %+v: %v, %w", g, first, err)
							}
						}
						return nil
					})
				})
			},
		},
		{
			Area: "find", Name: "the first of each group",
			Explain: "First returns the lowest id of the jobs of each key, unique key, sequence key and name, in the given states. Groups without such a job are left out.",
			Run: func(w *world) {
				s := w.Open()
				list := w.herd(s)
				for i := range 8 {
					j := w.job(s, "only")
					j.Mock, j.State = i%2 == 1, []jobs.State{jobs.Finished, jobs.Failed}[i/2%2]
					if i < 4 {
						j.Expires = j.Created
					}
					list = append(list, w.save(s, j)...)
				}
				var groups []jobstore.Group
				for _, name := range []string{"a", "A", "a*", "b", "only", "nobody", "\xff"} {
					groups = append(groups, jobstore.Group{By: jobstore.ByName, Name: name}, jobstore.Group{By: jobstore.ByMockName, Name: name})
					for _, key := range []string{"k", "K", "u", "nothing", "a\x00b"} {
						groups = append(groups, jobstore.Group{By: jobstore.ByKey, Name: name, Key: key}, jobstore.Group{By: jobstore.ByUniqueKey, Name: name, Key: key})
					}
				}
				for _, key := range []string{"k", "K", "nothing", "k"} {
					groups = append(groups, jobstore.Group{By: jobstore.BySequence, Key: key})
				}
				for _, states := range [][]jobs.State{
					nil, {}, {jobs.Waiting}, {jobs.Failed, jobs.Running}, {jobs.Running, jobs.Running}, jobstore.OpenStates(), {jobs.Cancelled},
				} {
					want := make([]jobs.ID, len(groups))
					for n, g := range groups {
						for i := range list {
							if j := &list[i]; want[n] == 0 && member(j, g) && (states == nil || slices.Contains(states, j.State)) {
								want[n] = j.ID
							}
						}
					}
					w.wantFirst(s, states, groups, want...)
				}
				w.wantFirst(s, nil, nil)
				w.wantFirst(w.Open(), nil, groups[:1], list[0].ID)
			},
		},
		{
			Area: "find", Name: "the last one that is over",
			Explain: "LastOver returns the newest job of a name and a key that is FINISHED, FAILED or CANCELLED, or nil.",
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
			Explain: "ExpireJobs deletes at most limit expired jobs with their messages, in the order of Expires, and returns their number. Other jobs stay.",
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
			Explain: "ExpireJobs skips jobs that another transaction has locked.",
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
			Explain: "The texts of a Query are not executed: a store returns no jobs for odd texts, or refuses them.",
			Run: func(w *world) {
				s := w.Open()
				j := w.add(s, "x")
				for _, text := range []string{"' OR 1=1 --", `" OR ""="`, "%", "_", "*", "x' ; DROP TABLE jobs; --", strings.Repeat("x", 100_000), "x\x00", "\xff\xfe", "$1", "?"} {
					for what, q := range map[string]Query{
						"name": {Name: text}, "key": sequence(text), "state": {Page: jobstore.Page{States: []jobs.State{jobs.State(text)}}}, "queue": {Queue: text},
						"answer's key": {Name: "x", Key: text}, "unique key": uniqueKey("x", text), "unique name": unique(text),
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
