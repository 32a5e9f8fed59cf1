package jobstest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// before compares two jobs in the order o of a queue, as cmp.Compare does: below 0 if a comes
// first.
func before(o jobs.Order, a, b *jobs.Row) int {
	if o == jobs.PriorityFirst {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID))
	}
	return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.ID, b.ID))
}

// inLine returns the jobs of list that Line must return for l with by as the latest Due: at most
// limit, in order.
func inLine(list []jobs.Row, l *jobs.Line, by time.Time, limit int) []jobs.Row {
	var out []jobs.Row
	for _, j := range list {
		if l.Queue != "" && j.Queue == l.Queue && j.State == l.State && !j.Due.IsZero() && !j.Due.After(by) &&
			j.Weight <= l.MaxWeight.Or(math.MaxInt64) && (l.After == nil || before(l.Order, l.After, &j) < 0) {
			out = append(out, j)
		}
	}
	slices.SortFunc(out, func(a, b jobs.Row) int { return before(l.Order, &a, &b) })
	return out[:min(limit, len(out))]
}

// weighed returns the results that Weigh must return for a queue with the jobs of list: the number
// of its running jobs and the sum of their weights.
func weighed(list []jobs.Row, queue string) (n, weight int64) {
	for _, j := range list {
		if queue != "" && j.Queue == queue && j.State.Runs() {
			n, weight = n+1, weight+j.Weight
		}
	}
	return n, weight
}

// line returns the query for the first due QUEUED jobs of a queue, at most limit.
func line(queue string, limit int) Query {
	return Query{Page: jobstore.Page{Limit: limit}, Line: &jobs.Line{Queue: queue, State: jobs.Queued}}
}

// queues saves n random jobs that differ in all fields of a Line, some without a queue. The seed is
// fixed. It returns the jobs with their ids.
func (w *world) queues(s jobs.Store, n int) []jobs.Row {
	w.Helper()
	template := w.job(s, "x")
	r := rand.New(rand.NewPCG(5, 6))
	states := []jobs.State{jobs.Queued, jobs.Queued, jobs.Queued, jobs.Running, jobs.Running, jobs.RunQueued, jobs.Failed, jobs.Waiting}
	list := make([]jobs.Row, n)
	for i := range list {
		j := template
		j.Name = []string{"x", "y"}[r.IntN(2)]
		j.Queue = []string{"q", "q", "q", "Q", "*", ""}[r.IntN(6)]
		j.State = states[r.IntN(len(states))]
		j.Priority = []int{-jobs.MaxPriority, 1, 100, jobs.MaxPriority}[r.IntN(4)]
		j.Weight = []int64{0, 1, 1000, jobs.MaxWeight}[r.IntN(4)]
		j.Mock = r.IntN(8) == 0 // Line ignores Mock
		switch r.IntN(6) {
		case 0:
			j.Due = time.Time{}
		case 1:
			j.Due = template.Created.Add(time.Hour + time.Duration(r.IntN(3))*time.Second)
		default:
			j.Due = template.Created.Add(-time.Duration(r.IntN(4)) * time.Second) // some at the same time
		}
		list[i] = j
	}
	return w.save(s, list...)
}

// lineCases returns the cases about Finder.Line and Weigher.Weigh.
func lineCases() []testCase {
	return []testCase{
		{
			Area: "line", Name: "what stands in it",
			Explain: "Line returns the due jobs of one queue and one state, up to a weight and after another job, with Mock or not. They are in the order of Due, Priority and ID, or of Priority, Due and ID, at most limit.",
			Run: func(w *world) {
				s := w.Open()
				list := w.queues(s, 150)
				now := w.now(s)
				other := list[40]
				other.Due, other.Priority = now.Add(-2*time.Second), 100 // the stored job has moved
				gone := other
				gone.ID, gone.Priority = math.MaxInt32, 1
				check := func(where string, limit int, find func(q Query) []jobs.Row) {
					w.Helper()
					for _, order := range []jobs.Order{jobs.TimeFirst, jobs.PriorityFirst} {
						for i, l := range []jobs.Line{
							{Queue: "q", State: jobs.Queued},
							{Queue: "q", State: jobs.Running},
							{Queue: "Q", State: jobs.Queued},
							{Queue: "*", State: jobs.Queued},
							{Queue: "nothing", State: jobs.Queued},
							{State: jobs.Queued},
							{Queue: "q", State: jobs.Queued, By: now.Add(-2 * time.Second)},
							{Queue: "q", State: jobs.Queued, By: now.Add(24 * time.Hour)},
							{Queue: "q", State: jobs.Running, By: now.Add(time.Hour + time.Second)},
							{Queue: "q", State: jobs.Queued, By: now.Add(-time.Hour)},
							{Queue: "q", State: jobs.Queued, MaxWeight: task.Set[int64](999)},
							{Queue: "q", State: jobs.Queued, MaxWeight: task.Set[int64](0)},
							{Queue: "q", State: jobs.Running, MaxWeight: task.Set[int64](1000)},
							{Queue: "q", State: jobs.Queued, MaxWeight: task.Set[int64](-1)},
							{Queue: "q", State: jobs.Queued, MaxWeight: task.Set[int64](math.MaxInt64)},
							{Queue: "q", State: jobs.Queued, After: &other},
							{Queue: "q", State: jobs.Running, After: &other},
							{Queue: "q", State: jobs.Queued, After: &gone, MaxWeight: task.Set[int64](1000), By: now.Add(24 * time.Hour)},
							{Queue: "q", State: jobs.Queued, After: &jobs.Row{Job: jobs.Job{Priority: jobs.MaxPriority, ID: 1}, Due: now.Add(48 * time.Hour)}},
							{Queue: "q", State: jobs.Queued, After: &jobs.Row{Job: jobs.Job{Priority: -2 * jobs.MaxPriority}, Due: now.Add(-48 * time.Hour)}},
						} {
							l.Order = order
							by := l.By
							if by.IsZero() {
								by = now
							}
							found, want := find(Query{Page: jobstore.Page{Limit: limit}, Line: &l}), inLine(list, &l, by, limit)
							w.wantIDs(found, want, "%s: line %d in order %d, limit %d", where, i, order, limit)
							for k := range min(len(found), len(want), 3) {
								w.wantSame(found[k], want[k], "line %d", i)
							}
						}
					}
				}
				for _, limit := range []int{1, 4, 1000} {
					check("in a View", limit, func(q Query) []jobs.Row { return w.find(s, q) })
				}
				w.update(s, func(ctx context.Context, tx jobstore.Tx) (err error) {
					check("in Update", 5, func(q Query) []jobs.Row {
						found, bad := q.Find(ctx, tx)
						err = errors.Join(err, bad)
						return found
					})
					return err
				})
			},
		},
		{
			Area: "line", Name: "a limit",
			Explain: "Line refuses a limit below 1.",
			Run: func(w *world) {
				s := w.Open()
				w.add(s, "a", func(j *jobs.Row) { j.Queue = "q" })
				ctx, cancel := w.Ctx()
				defer cancel()
				err := s.View(ctx, func(ctx context.Context, tx jobstore.Tx) error { _, err := line("q", 0).Find(ctx, tx); return err })
				w.WantIs(err, jobs.ErrBadJob, "a line without a limit")
			},
		},
		{
			Area: "line", Name: "pages",
			Explain: "A line is read in pages, each after the last job of the previous page, even if that job has moved. A job that keeps its place is returned once.",
			Run: func(w *world) {
				s := w.Open()
				template := w.job(s, "a", func(j *jobs.Row) { j.Queue = "q" })
				list := make([]jobs.Row, 30)
				for i := range list {
					list[i] = template
					list[i].Priority, list[i].Due = i%3, template.Due.Add(-time.Duration(i/6)*time.Second)
				}
				list = w.save(s, list...)
				for _, order := range []jobs.Order{jobs.TimeFirst, jobs.PriorityFirst} {
					l := jobs.Line{Queue: "q", State: jobs.Queued, Order: order}
					want := inLine(list, &l, template.Created, 100)
					var got []jobs.Row
					for {
						page := w.find(s, Query{Page: jobstore.Page{Limit: 7}, Line: &l})
						if len(page) == 0 {
							break
						}
						got = append(got, page...)
						last := page[len(page)-1]
						w.edit(s, last.ID, func(j *jobs.Row) { j.State = jobs.Running })
						l.After = &last
					}
					w.wantIDs(got, want, "all pages in order %d", order)
					w.save(s, list...)
				}
			},
		},
		{
			Area: "line", Name: "after a change",
			Explain: "A line follows every change: of the queue, the state, the time, the priority and the weight.",
			Run: func(w *world) {
				s := w.Open()
				ofQueue := func(j *jobs.Row) { j.Queue, j.Weight = "q", 1000 }
				list := w.save(s, w.job(s, "a", ofQueue), w.job(s, "b", ofQueue))
				list[1].Due = list[0].Due
				a, b := list[0], w.save(s, list[1])[0]
				q := line("q", 10)
				q.Line.MaxWeight = task.Set[int64](1000)
				step := func(what string, how func(*jobs.Row), want ...jobs.Row) {
					w.Helper()
					w.edit(s, a.ID, how)
					for _, q.Line.Order = range []jobs.Order{jobs.TimeFirst, jobs.PriorityFirst} {
						w.wantIDs(w.find(s, q), want, "%s", what)
					}
				}
				step("no change", func(*jobs.Row) {}, a, b)
				step("later", func(j *jobs.Row) { j.Due = j.Due.Add(time.Microsecond) }, b, a)
				step("earlier", func(j *jobs.Row) { j.Due = j.Due.Add(-time.Second) }, a, b)
				step("as early", func(j *jobs.Row) { j.Due = b.Due }, a, b)
				step("less urgent", func(j *jobs.Row) { j.Priority++ }, b, a)
				step("heavier", func(j *jobs.Row) { j.Weight++ }, b)
				step("lighter", func(j *jobs.Row) { j.Weight-- }, b, a)
				step("another queue", func(j *jobs.Row) { j.Queue = "p" }, b)
				step("no queue", func(j *jobs.Row) { j.Queue = "" }, b)
				w.wantIDs(w.find(s, due("*", 10)), []jobs.Row{a}, "what is due without a queue")
				step("the queue again", func(j *jobs.Row) { j.Queue = "q" }, b, a)
				w.wantIDs(w.find(s, due("*", 10)), nil, "what is due without a queue")
				step("runs", func(j *jobs.Row) { j.State = jobs.Running }, b)
				step("waits again", func(j *jobs.Row) { j.State = jobs.Queued }, b, a)
				step("never", func(j *jobs.Row) { j.Due = time.Time{} }, b)
				step("in an hour", func(j *jobs.Row) { j.Due = j.Created.Add(time.Hour) }, b)
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error { return tx.Delete(ctx, b.ID) })
				step("alone", func(j *jobs.Row) { j.Due = j.Created }, a)
			},
		},
		{
			Area: "line", Name: "nobody else's",
			Explain: "Only Line returns jobs of a queue for a claim: Due and Coming ignore them.",
			Run: func(w *world) {
				s := w.Open()
				now := w.now(s)
				ofQueue := func(j *jobs.Row) { j.Queue = "q" }
				running := func(j *jobs.Row) { j.Queue, j.State = "q", jobs.Running } // its lease has ended
				list := w.save(s, w.job(s, "a", ofQueue), w.job(s, "a", running), w.job(s, "a", ofQueue, func(j *jobs.Row) { j.Due = now.Add(time.Hour) }))
				for _, sel := range []jobs.Selector{{Pattern: "*", Mock: true}, {Pattern: "[a]"}, {Names: []string{"a"}}, {Names: []string{"a", "b"}}} {
					w.wantIDs(w.find(s, Query{Page: jobstore.Page{Limit: 9}, Due: &jobs.Due{Selector: sel, By: now.Add(24 * time.Hour)}}), nil, "due to others: %+v", sel)
					if w.h.Promises.Take {
						w.wantIDs(w.take(s, jobs.Due{Selector: sel}, 9, 0).jobs, nil, "taken by others: %+v", sel)
					}
				}
				if c := w.coming(s, now.Add(-time.Hour), 10); len(c.Names) > 0 || !c.Next.IsZero() {
					w.Errorf("coming: %v, and something at %v", c.Names, c.Next)
				}
				for i, j := range list {
					w.wantSame(w.get(s, j.ID), j, "job %d", i)
				}
			},
		},
		{
			Area: "line", Name: "becomes due",
			Explain: "A job of a queue is due from its Due on, by the store's clock, and not before.",
			Run: func(w *world) {
				s := w.Open()
				j := w.add(s, "a", func(j *jobs.Row) { j.Queue, j.Due = "q", j.Created.Add(200*time.Millisecond) })
				w.Until("the job is due", func() bool {
					found := w.find(s, line("q", 1))
					// the time of a transaction may be slightly behind
					if now := w.coming(s, time.Time{}, 0).Now; len(found) > 0 && now.Before(j.Due) {
						w.Fatalf("found at %v, before it was due at %v", now, j.Due)
					}
					return len(found) > 0
				})
			},
		},
		{
			Area: "line", Name: "disjoint claims",
			Explain: "Concurrent claims from a line get different jobs: Line locks the jobs that it returns, and skips jobs that other transactions have locked.",
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				template := w.job(s, "a", func(j *jobs.Row) { j.Queue = "q" })
				list := make([]jobs.Row, 60)
				for i := range list {
					list[i] = template
				}
				list = w.save(s, list...)
				var mu sync.Mutex
				taken := map[jobs.ID]int{}
				all(8, func(i int) {
					q := line("q", 3)
					q.Line.Order = jobs.Order(i / 2 % 2)
					for misses := 0; misses < 200; {
						var mine []jobs.ID
						if !w.try([]jobs.Store{s, other}[i%2], func(ctx context.Context, tx jobstore.Tx) error {
							found, err := q.Find(ctx, tx)
							mine = ids(found)
							for i := range found {
								found[i].State = jobs.Running
							}
							return errors.Join(err, tx.Save(ctx, pointers(found)...))
						}) {
							return
						}
						mu.Lock()
						for _, id := range mine {
							taken[id]++
						}
						done := len(taken) == len(list)
						mu.Unlock()
						if done {
							return
						}
						if len(mine) == 0 { // other transactions have locked the rest
							misses++
						}
					}
				})
				for _, j := range list {
					if taken[j.ID] != 1 {
						w.Errorf("job %d was claimed %d times", j.ID, taken[j.ID])
					}
				}
			},
		},
		{
			Area: "line", Name: "passes over locked ones",
			Explain: "If transactions run in parallel, a claim from a line does not wait: it gets the next jobs. It locks only the returned jobs. A View locks nothing and returns locked jobs, too.",
			Needs:   []need{needsParallel},
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				ofQueue := func(j *jobs.Row) { j.Queue, j.Due = "q", j.Created }
				list := w.save(s, w.job(s, "a", ofQueue), w.job(s, "a", ofQueue), w.job(s, "a", ofQueue))
				for _, order := range []jobs.Order{jobs.TimeFirst, jobs.PriorityFirst} {
					q := line("q", 1)
					q.Line.Order = order
					w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
						first, err := q.Find(ctx, tx)
						if err != nil {
							return err
						}
						w.wantIDs(first, list[:1], "the first claim, in order %d", order)
						rest := q
						rest.Limit = 5
						return other.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
							second, err := rest.Find(ctx, tx)
							if err != nil {
								return err
							}
							w.wantIDs(second, list[1:], "the second claim, in order %d", order)
							w.wantIDs(w.find(s, rest), list, "a View meanwhile, in order %d", order)
							return nil
						})
					})
				}
			},
		},
		{
			Area: "weigh", Name: "what runs",
			Explain: "Weigh returns the number of running jobs of a queue, due or not, and the sum of their weights, as its transaction sees them.",
			Needs:   []need{needsWeigh},
			Run: func(w *world) {
				s := w.Open()
				list := w.queues(s, 100)
				check := func(ctx context.Context, tx jobstore.Tx) error {
					for _, queue := range []string{"q", "Q", "*", "nothing", "", "' OR 1=1 --", "x\x00"} {
						n, weight, err := optional[jobstore.Weigher](tx).Weigh(ctx, queue)
						if err != nil {
							return err
						}
						if wantN, want := weighed(list, queue); n != wantN || weight != want {
							return fmt.Errorf("of the queue %q run %d that weigh %d, not %d that weigh %d", queue, n, weight, wantN, want)
						}
					}
					return nil
				}
				w.view(s, check)
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
					i := slices.IndexFunc(list, func(j jobs.Row) bool { return j.Queue == "q" && j.State == jobs.Queued })
					list[i].State, list[i].Weight = jobs.RunQueued, 7
					if err := tx.Save(ctx, &list[i]); err != nil {
						return err
					}
					return check(ctx, tx)
				})
				w.view(w.Open(), check)
			},
		},
	}
}
