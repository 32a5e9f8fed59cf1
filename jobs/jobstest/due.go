package jobstest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/glob"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// pick returns the jobs of list that Due must return for the selector s with by as the latest Due:
// at most limit, in order.
func pick(list []jobs.Row, s jobs.Selector, by time.Time, limit int) []jobs.Row {
	var out []jobs.Row
	pattern := glob.Compile(s.Pattern)
	for _, j := range list {
		named := s.Pattern != "" && pattern.Match(j.Name) || s.Pattern == "" && slices.Contains(s.Names, j.Name)
		if named && j.Queue == "" && !j.Due.IsZero() && !j.Due.After(by) && j.Priority == s.Priority.Or(j.Priority) && (s.Mock || !j.Mock) {
			out = append(out, j)
		}
	}
	slices.SortFunc(out, func(a, b jobs.Row) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID))
	})
	return out[:min(limit, len(out))]
}

// crowd saves n random jobs with many names, priorities and times, some with Mock, some with a
// queue, some without a Due. The seed is fixed. It returns the jobs with their ids.
func (w *world) crowd(s jobs.Store, n int) []jobs.Row {
	w.Helper()
	template := w.job(s, "x")
	names := []string{"a", "a/1", "a/2", "b", "B", "Foo1", "foo2", "é", "a*", "[a]", "www-prod/SendEmail"}
	states := []jobs.State{jobs.Queued, jobs.RunQueued, jobs.Running, jobs.Paused}
	r := rand.New(rand.NewPCG(1, 2))
	list := make([]jobs.Row, n)
	for i := range list {
		j := template
		j.Name = names[r.IntN(len(names))]
		j.Priority = []int{-jobs.MaxPriority, 0, 100, 150, 1000, jobs.MaxPriority}[r.IntN(6)]
		j.State = states[r.IntN(len(states))] // the store considers only Due
		j.Mock = r.IntN(5) == 0
		if r.IntN(8) == 0 {
			j.Queue = "q"
		}
		switch r.IntN(4) {
		case 0:
			j.Due = time.Time{}
		case 1:
			j.Due = template.Created.Add(time.Hour + time.Duration(r.IntN(5))*time.Second)
		default:
			j.Due = template.Created.Add(-time.Duration(r.IntN(5)) * time.Second) // some at the same time
		}
		list[i] = j
	}
	return w.save(s, list...)
}

// dueCases returns the cases about Finder.Due.
func dueCases() []testCase {
	return []testCase{
		{
			Area: "due", Name: "selectors",
			Explain: "Due returns the due jobs without a queue that a selector matches: by pattern or names, priority, and Mock if wanted. They are in the order of Priority, Due and ID, at most limit. Only Due decides, not the state.",
			Run: func(w *world) {
				s := w.Open()
				list := w.crowd(s, 150)
				now := w.now(s)
				selectors := []jobs.Selector{
					{Pattern: "*"},
					{Pattern: "*", Mock: true},
					{Pattern: "a"},
					{Pattern: "a*"},
					{Pattern: "a/?"},
					{Pattern: "[a-b]"},
					{Pattern: "[^a]*"},
					{Pattern: "a[*]"},
					{Pattern: "[[]a]"},
					{Pattern: "?"},
					{Pattern: "*[0-9]"},
					{Pattern: "Foo*"},
					{Pattern: "*SendEmail"},
					{Pattern: "nobody*"},
					{Pattern: "[a"},
					{Names: []string{"a"}},
					{Names: []string{"foo2", "a", "a", "nobody", "a*"}},
					{Names: []string{"[a-z]"}},
					{Pattern: "B", Names: []string{"a"}}, // names are used only without a pattern
					{},
					{Pattern: "*", Priority: task.Set(150)},
					{Pattern: "a*", Priority: task.Set(0), Mock: true},
					{Names: []string{"a", "b"}, Priority: task.Set(-jobs.MaxPriority)},
					{Pattern: "*", Priority: task.Set(99)},
				}
				for _, sel := range selectors {
					for _, by := range []time.Time{{}, now.Add(-2 * time.Second), now.Add(time.Hour + 2*time.Second), now.Add(-time.Hour)} {
						for _, limit := range []int{1, 7, 1000} {
							until := by
							if by.IsZero() {
								until = now
							}
							found := w.find(s, Query{Page: jobstore.Page{Limit: limit}, Due: &jobs.Due{Selector: sel, By: by}})
							w.wantIDs(found, pick(list, sel, until, limit), "%+v by %v, limit %d", sel, by, limit)
						}
					}
				}
				sel, limit := selectors[0], 10
				// the same in a transaction that locks
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
					found, err := tx.Due(ctx, jobs.Due{Selector: sel}, limit)
					w.wantIDs(found, pick(list, sel, now, limit), "in Update")
					for _, j := range found {
						w.wantSame(j, list[slices.IndexFunc(list, func(o jobs.Row) bool { return o.ID == j.ID })], "in Update")
					}
					return err
				})
			},
		},
		{
			Area: "due", Name: "a limit",
			Explain: "Due refuses a limit below 1.",
			Run: func(w *world) {
				s := w.Open()
				w.add(s, "a")
				for _, limit := range []int{0, -1} {
					ctx, cancel := w.Ctx()
					err := s.View(ctx, func(ctx context.Context, tx jobstore.Tx) error { _, err := due("*", limit).Find(ctx, tx); return err })
					cancel()
					w.WantIs(err, jobs.ErrBadJob, "Due with the limit %d", limit)
				}
			},
		},
		{
			Area: "due", Name: "patterns",
			Explain: "A pattern is SQLite's GLOB for the whole name in every store, so that a worker finds the same jobs in each.",
			Run: func(w *world) {
				s := w.Open()
				r := rand.New(rand.NewPCG(3, 4))
				letters := strings.Split("a|b|c|/|é|-|[|]|*|^", "|")
				text := func(from []string, most int) string {
					var b strings.Builder
					for range 1 + r.IntN(most) {
						b.WriteString(from[r.IntN(len(from))])
					}
					return b.String()
				}
				template := w.job(s, "x")
				list := make([]jobs.Row, 60)
				for i := range list {
					list[i] = template
					list[i].Name = text(letters, 4)
				}
				list = w.save(s, list...)
				parts := append(slices.Clone(letters), "*", "*", "?", "?", "[a-b]", "[^a]", "[", "]", "[b-a]", "[]a]", "[a-]", "'", `"`, `\`, "%", "_")
				for range 40 {
					p := text(parts, 4)
					sel := jobs.Selector{Pattern: p}
					w.wantIDs(w.find(s, due(p, 100)), pick(list, sel, template.Created, 100), "the pattern %q", p)
				}
				for _, p := range []string{
					"[a-", strings.Repeat("*a*a*a*a*b", 1000), strings.Repeat("?", 10_000), strings.Repeat("[", 10_000),
					"' OR 1=1 --", "a\x00b", "\xff*", "*\xc3",
				} {
					var found []jobs.Row
					ctx, cancel := w.Ctx()
					err := s.View(ctx, func(ctx context.Context, tx jobstore.Tx) (err error) {
						found, err = due(p, 100).Find(ctx, tx)
						return err
					})
					cancel()
					if err != nil {
						w.WantIs(err, jobs.ErrBadJob, "the pattern %.30q", p)
						continue
					}
					w.wantIDs(found, pick(list, jobs.Selector{Pattern: p}, template.Created, 100), "the pattern %.30q", p)
				}
			},
		},
		{
			Area: "due", Name: "hundreds of names",
			Explain: "A list of names may be long, and there may be many names.",
			Run: func(w *world) {
				s := w.Open()
				template := w.job(s, "x")
				list := make([]jobs.Row, 300)
				var some []string
				for i := range list {
					list[i] = template
					list[i].Name = fmt.Sprintf("name-%03d", i)
					list[i].Priority = i % 3
					if i%2 == 0 {
						some = append(some, list[i].Name)
					}
				}
				list = w.save(s, list...)
				for _, sel := range []jobs.Selector{{Pattern: "*"}, {Pattern: "*7"}, {Pattern: "name-12?"}, {Names: some}} {
					for _, limit := range []int{1, 500} {
						found := w.find(s, Query{Page: jobstore.Page{Limit: limit}, Due: &jobs.Due{Selector: sel}})
						w.wantIDs(found, pick(list, sel, template.Created, limit), "%.30v, limit %d", sel.Pattern, limit)
					}
				}
			},
		},
		{
			Area: "due", Name: "after a change",
			Explain: "The due jobs follow every change: of the name, the priority, the time, the queue and Mock.",
			Run: func(w *world) {
				s := w.Open()
				list := w.save(s, w.job(s, "a"), w.job(s, "b"))
				list[1].Due = list[0].Due
				a, b := list[0], w.save(s, list[1])[0]
				step := func(what string, how func(*jobs.Row), want ...jobs.Row) {
					w.Helper()
					w.edit(s, a.ID, how)
					w.wantIDs(w.find(s, due("*", 10)), want, "%s", what)
				}
				step("no change", func(*jobs.Row) {}, a, b)
				step("later", func(j *jobs.Row) { j.Due = j.Due.Add(time.Microsecond) }, b, a)
				step("more urgent", func(j *jobs.Row) { j.Priority-- }, a, b)
				step("a mock", func(j *jobs.Row) { j.Mock = true }, b)
				step("none any more", func(j *jobs.Row) { j.Mock = false }, a, b)
				step("of a queue", func(j *jobs.Row) { j.Queue = "q" }, b)
				step("of none again", func(j *jobs.Row) { j.Queue = "" }, a, b)
				step("not at all", func(j *jobs.Row) { j.Due = time.Time{} }, b)
				step("in an hour", func(j *jobs.Row) { j.Due = j.Created.Add(time.Hour) }, b)
				step("again", func(j *jobs.Row) { j.Due = j.Created }, a, b)
				step("renamed", func(j *jobs.Row) { j.Name = "c" }, a, b)
				w.wantIDs(w.find(s, due("a", 10)), nil, "the old name")
				w.wantIDs(w.find(s, due("c", 10)), []jobs.Row{a}, "the new name")
			},
		},
		{
			Area: "due", Name: "becomes due",
			Explain: "A job is due from its Due on, by the store's clock, and not before.",
			Run: func(w *world) {
				s := w.Open()
				j := w.add(s, "a", func(j *jobs.Row) { j.Due = j.Created.Add(300 * time.Millisecond) })
				w.Until("the job is due", func() bool {
					found := w.find(s, due("a", 1))
					now := w.coming(s, time.Time{}, 0).Now // the time of a transaction may be slightly behind
					if len(found) > 0 && now.Before(j.Due) {
						w.Fatalf("found at %v, before it was due at %v", now, j.Due)
					}
					return len(found) > 0
				})
			},
		},
		{
			Area: "due", Name: "disjoint claims",
			Explain: "Concurrent claims get different jobs: Due locks the jobs that it returns, and skips jobs that other transactions have locked.",
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				const total = 160
				list := make([]jobs.Row, total)
				template := w.job(s, "claim")
				for i := range list {
					list[i] = template
				}
				list = w.save(s, list...)
				var mu sync.Mutex
				taken := map[jobs.ID]int{}
				all(16, func(i int) {
					from := []jobs.Store{s, other}[i%2]
					for misses := 0; misses < 200; {
						var mine []jobs.ID
						if !w.try(from, func(ctx context.Context, tx jobstore.Tx) error {
							mine = nil
							found, err := due("cl*", 3).Find(ctx, tx)
							for i := range found {
								found[i].State, found[i].Due = jobs.Running, time.Time{}
								mine = append(mine, found[i].ID)
							}
							return errors.Join(err, tx.Save(ctx, pointers(found)...))
						}) {
							return
						}
						mu.Lock()
						for _, id := range mine {
							taken[id]++
						}
						done := len(taken) == total
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
			Area: "due", Name: "passes over locked ones",
			Explain: "If transactions run in parallel, a claim does not wait for another one: it gets the next job.",
			Needs:   []need{needsParallel},
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				list := w.save(s, w.job(s, "a"), w.job(s, "a"))
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
					first, err := only(due("a", 1).Find(ctx, tx))
					if err != nil {
						return err
					}
					var second []jobs.Row
					if err := other.Update(ctx, func(ctx context.Context, tx jobstore.Tx) (err error) {
						second, err = due("a", 5).Find(ctx, tx)
						return err
					}); err != nil {
						return err
					}
					w.wantIDs([]jobs.Row{first}, list[:1], "the first claim")
					w.wantIDs(second, list[1:], "the second claim")
					return nil
				})
			},
		},
	}
}
