package jobstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// taking is the result of Take.
type taking struct {
	jobs []jobs.Row
	rest bool
}

// take calls Take once, in Single, as the service does, and returns its results. An error fails the
// case at once, also if the transaction is not a Taker.
func (w *world) take(s jobs.Store, d jobs.Due, limit int, lease time.Duration) (got taking) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(s.Single(ctx, func(ctx context.Context, tx jobstore.Tx) (err error) {
		t, ok := capability.As[jobstore.Taker](tx)
		if !ok {
			return errors.New("the transaction is no Taker")
		}
		got.jobs, got.rest, err = t.Take(ctx, d, limit, lease)
		return err
	}), "Take")
	return got
}

// forPattern returns the argument of Take for jobs that are due now and whose name matches p.
func forPattern(p string) jobs.Due { return jobs.Due{Selector: jobs.Selector{Pattern: p}} }

// takeCases returns the cases about Taker.Take.
func takeCases() []testCase {
	return []testCase{
		{
			Area: "take", Name: "what it changes",
			Explain: "Take claims jobs: State is RUNNING, LastRun and Changed are now, Token is one higher, and Attempt is one higher unless the job was RUNNING. If the job was QUEUED, Run is one higher and Scheduled is its NextRun. Due is the end of the lease. Nothing else changes. Take returns the jobs after the claim.",
			Needs:   []need{needsTake},
			Run: func(w *world) {
				s := w.Open()
				queued := func(j *jobs.Row) {
					j.Run, j.Token, j.Repeat, j.SequenceKey, j.Data = 3, 5, "FINISHED, +1 HOUR", "k", []byte(`{"a":[1]}`)
					j.LastRun, j.Scheduled, j.Reason = j.Created.Add(-time.Hour), j.Created.Add(-time.Hour), "once"
				}
				running := func(j *jobs.Row) { // its lease has ended
					queued(j)
					j.State = jobs.Running
				}
				before := w.save(s, w.job(s, "a", queued), w.job(s, "b", running), w.job(s, "c", queued))
				at := w.now(s)
				got := w.take(s, jobs.Due{Selector: jobs.Selector{Names: []string{"b", "a"}}}, 10, time.Minute)
				w.wantIDs(got.jobs, before[:2], "what was taken")
				if got.rest {
					w.Error("there is a rest")
				}
				for i, j := range got.jobs {
					want := before[i]
					if j.LastRun.Before(at) || j.LastRun.After(w.now(s)) {
						w.Errorf("job %d was taken at %v, not after %v", i, j.LastRun, at)
					}
					want.State, want.LastRun, want.Changed, want.Due = jobs.Running, j.LastRun, j.LastRun, j.LastRun.Add(time.Minute)
					want.Token++
					if i == 0 {
						want.Run++
						want.Attempt++
						want.Scheduled = before[i].NextRun
					}
					w.wantSame(j, want, "the answer, job %d", i)
					w.wantSame(w.get(s, j.ID), want, "job %d", i)
				}
				w.wantSame(w.get(s, before[2].ID), before[2], "a job that was not asked for")
				got = w.take(s, forPattern("c"), 1, 0)
				if len(got.jobs) != 1 || !got.jobs[0].Due.IsZero() || !w.get(s, before[2].ID).Due.IsZero() {
					w.Errorf("without a lease a job has no Due: %+v", got.jobs)
				}
				postponed := w.add(s, "d", queued, func(j *jobs.Row) { j.State, j.Attempt = jobs.RunQueued, 4 })
				if got = w.take(s, forPattern("d"), 1, 0); len(got.jobs) != 1 || got.jobs[0].Attempt != 5 || got.jobs[0].Run != 3 || w.get(s, postponed.ID).Attempt != 5 {
					w.Errorf("one that was RUNQUEUED begins another attempt of the same run: %+v", got.jobs)
				}
				if got = w.take(s, forPattern("*"), 10, 0); len(got.jobs) > 0 || got.rest {
					w.Errorf("%d are taken when nothing is due, rest %v", len(got.jobs), got.rest)
				}
			},
		},
		{
			Area: "take", Name: "as Find answers",
			Explain: "Take claims the jobs that Due would return, in its order, at most limit.",
			Needs:   []need{needsTake},
			Run: func(w *world) {
				s := w.Open()
				list := w.crowd(s, 200)
				now := w.now(s)
				for _, sel := range []jobs.Selector{{Pattern: "a*"}, {Names: []string{"b", "é"}}, {Pattern: "*"}, {Pattern: "*", Mock: true}} {
					for _, limit := range []int{1, 5, 1000} {
						want := pick(list, sel, now, limit)
						got := w.take(s, jobs.Due{Selector: sel}, limit, time.Hour)
						w.wantIDs(got.jobs, want, "%+v, limit %d", sel, limit)
						for _, j := range got.jobs {
							for i := range list {
								if list[i].ID == j.ID {
									list[i] = j
								}
							}
						}
					}
				}
			},
		},
		{
			Area: "take", Name: "stops",
			Explain: "Take stops before the first job that has a RetryAfter, a parent or children, and reports that. The store does not know its rules, and later jobs must not overtake it.",
			Needs:   []need{needsTake},
			Run: func(w *world) {
				s := w.Open()
				for name, special := range map[string]func(*jobs.Row){
					"retry":    func(j *jobs.Row) { j.RetryAfter = "+1 MINUTE" },
					"child":    func(j *jobs.Row) { j.Parent = 4711 },
					"children": func(j *jobs.Row) { j.HasChildren = true },
				} {
					list := w.save(s, w.job(s, name), w.job(s, name), w.job(s, name, special), w.job(s, name))
					got := w.take(s, forPattern(name), 10, 0)
					w.wantIDs(got.jobs, list[:2], "before %s", name)
					if !got.rest {
						w.Errorf("%s: no rest", name)
					}
					got = w.take(s, forPattern(name), 10, 0)
					if len(got.jobs) > 0 || !got.rest {
						w.Errorf("%s: %d were taken, rest %v", name, len(got.jobs), got.rest)
					}
					w.wantSame(w.get(s, list[2].ID), list[2], "the special one")
				}
			},
		},
		{
			Area: "take", Name: "undone",
			Explain: "Take is undone together with its transaction.",
			Needs:   []need{needsTake},
			Run: func(w *world) {
				s := w.Open()
				j := w.add(s, "a")
				ctx, cancel := w.Ctx()
				defer cancel()
				err := s.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
					taken, _, err := optional[jobstore.Taker](tx).Take(ctx, forPattern("a"), 1, 0)
					if err != nil || len(taken) != 1 {
						return fmt.Errorf("%d were taken: %w", len(taken), err)
					}
					if got, err := tx.Get(ctx, j.ID); err != nil || got.State != jobs.Running {
						return fmt.Errorf("state %s: %w", got.State, err)
					}
					return errCase
				})
				w.WantIs(err, errCase, "the transaction")
				w.wantSame(w.get(s, j.ID), j, "the job")
			},
		},
		{
			Area: "take", Name: "disjoint",
			Explain: "Concurrent calls of Take get different jobs, and together all of them.",
			Needs:   []need{needsTake},
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				const total = 300
				list := make([]jobs.Row, total)
				template := w.job(s, "take")
				for i := range list {
					list[i] = template
				}
				list = w.save(s, list...)
				var mu sync.Mutex
				taken := map[jobs.ID]int{}
				all(16, func(i int) {
					from := []jobs.Store{s, other}[i%2]
					for misses := 0; misses < 200; {
						var mine []jobs.Row
						ctx, cancel := w.Ctx()
						err := from.Single(ctx, func(ctx context.Context, tx jobstore.Tx) (err error) {
							mine, _, err = optional[jobstore.Taker](tx).Take(ctx, forPattern("take"), 1+i%3, time.Hour)
							return err
						})
						cancel()
						if w.Clean(err) != nil {
							w.Errorf("Take: %v", err)
							return
						}
						mu.Lock()
						for _, j := range mine {
							taken[j.ID]++
							if j.Token != 1 || j.Run != 1 {
								w.Errorf("job %d has token %d and run %d", j.ID, j.Token, j.Run)
							}
						}
						done := len(taken) == total
						mu.Unlock()
						if done {
							return
						}
						if len(mine) == 0 {
							misses++
						}
					}
				})
				for _, j := range list {
					if taken[j.ID] != 1 {
						w.Errorf("job %d was taken %d times", j.ID, taken[j.ID])
					}
				}
			},
		},
		{
			Area: "take", Name: "after a lease",
			Explain: "A job whose lease has ended is claimed again, with the next token and the same run.",
			Needs:   []need{needsTake},
			Run: func(w *world) {
				s := w.Open()
				j := w.add(s, "a")
				first := w.take(s, forPattern("a"), 1, 200*time.Millisecond)
				w.wantIDs(first.jobs, []jobs.Row{j}, "the first")
				var again taking
				w.Until("the lease ends", func() bool {
					again = w.take(s, forPattern("a"), 1, time.Hour)
					return len(again.jobs) > 0
				})
				got := again.jobs[0]
				if got.Token != 2 || got.Run != 1 || got.LastRun.Before(first.jobs[0].Due) || !got.Scheduled.Equal(j.NextRun) {
					w.Errorf("handed out again at %v, after a lease until %v: token %d, run %d", got.LastRun, first.jobs[0].Due, got.Token, got.Run)
				}
			},
		},
	}
}

// drop calls Drop once, in Single, as the service does, and returns its result. An error fails the
// case at once, also if the transaction is not a Dropper.
func (w *world) drop(s jobs.Store, id jobs.ID, token int64) (dropped bool) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(s.Single(ctx, func(ctx context.Context, tx jobstore.Tx) (err error) {
		d, ok := capability.As[jobstore.Dropper](tx)
		if !ok {
			return errors.New("the transaction is no Dropper")
		}
		dropped, err = d.Drop(ctx, id, token)
		return err
	}), "Drop")
	return dropped
}

// dropCases returns the cases about Dropper.Drop.
func dropCases() []testCase {
	running := func(j *jobs.Row) { j.State, j.Token = jobs.Running, 3 }
	return []testCase{
		{
			Area: "drop", Name: "which it deletes",
			Explain: "Drop deletes a job if it runs, is simple, and has the token; token 0 matches any. It reports whether it did, and changes no other job.",
			Needs:   []need{needsDrop},
			Run: func(w *world) {
				s := w.Open()
				for name, edit := range map[string]func(*jobs.Row){
					"a repeat":     func(j *jobs.Row) { j.Repeat = "FINISHED, +1 HOUR" },
					"a retryAfter": func(j *jobs.Row) { j.RetryAfter = "+1 MINUTE" },
					"a parent":     func(j *jobs.Row) { j.Parent = 4711 },
					"children":     func(j *jobs.Row) { j.HasChildren = true },
					"a key":        func(j *jobs.Row) { j.SequenceKey = "k" },
					"a queue":      func(j *jobs.Row) { j.Queue = "q" },
					"an answer's":  func(j *jobs.Row) { j.Key = "k" },
					"QUEUED":       func(j *jobs.Row) { j.State = jobs.Queued },
					"PAUSED":       func(j *jobs.Row) { j.State = jobs.Paused },
					"WAITING":      func(j *jobs.Row) { j.State = jobs.Waiting },
					"FAILED":       func(j *jobs.Row) { j.State = jobs.Failed },
					"FINISHED":     func(j *jobs.Row) { j.State = jobs.Finished },
					"CANCELLED":    func(j *jobs.Row) { j.State = jobs.Cancelled },
				} {
					j := w.add(s, "a", running, edit)
					if w.drop(s, j.ID, 3) || w.drop(s, j.ID, 0) {
						w.Errorf("a job was dropped that has or is: %s", name)
					}
					w.wantSame(w.get(s, j.ID), j, "a job that has or is: %s", name)
				}
				for _, token := range []int64{3, 0} {
					for _, state := range []jobs.State{jobs.Running, jobs.RunQueued} {
						j := w.add(s, "a", running, func(j *jobs.Row) { j.State, j.Mock = state, true })
						if w.drop(s, j.ID, 2) || w.drop(s, j.ID, 4) || w.drop(s, j.ID, -1) {
							w.Error("a job was dropped with another token")
						}
						w.wantSame(w.get(s, j.ID), j, "after another token")
						if !w.drop(s, j.ID, token) {
							w.Errorf("a job that is %s was not dropped with token %d", state, token)
						}
						w.gone(s, j.ID, "what was dropped")
						if w.drop(s, j.ID, token) {
							w.Error("a job was dropped twice")
						}
					}
				}
				if w.drop(s, 4711, 0) {
					w.Error("a job was dropped that never was")
				}
				if n := len(w.find(s, Query{})); n != 13 {
					w.Errorf("%d jobs are left, not the 13 that could not be dropped", n)
				}
			},
		},
		{
			Area: "drop", Name: "undone",
			Explain: "Drop is undone together with its transaction.",
			Needs:   []need{needsDrop},
			Run: func(w *world) {
				s := w.Open()
				j := w.add(s, "a", running)
				ctx, cancel := w.Ctx()
				defer cancel()
				err := s.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
					dropped, err := optional[jobstore.Dropper](tx).Drop(ctx, j.ID, 3)
					if err != nil || !dropped {
						return fmt.Errorf("dropped: %v, %w", dropped, err)
					}
					return errCase
				})
				w.WantIs(err, errCase, "the transaction")
				w.wantSame(w.get(s, j.ID), j, "the job")
			},
		},
		{
			Area: "drop", Name: "once",
			Explain: "Of concurrent calls of Drop for a job, one reports that it deleted the job.",
			Needs:   []need{needsDrop},
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				var list []jobs.Row
				for range 10 {
					list = append(list, w.job(s, "a", running))
				}
				list = w.save(s, list...)
				var mu sync.Mutex
				dropped := map[jobs.ID]int{}
				all(8, func(i int) {
					for _, j := range list {
						var did bool
						ctx, cancel := w.Ctx()
						err := []jobs.Store{s, other}[i%2].Single(ctx, func(ctx context.Context, tx jobstore.Tx) (err error) {
							did, err = optional[jobstore.Dropper](tx).Drop(ctx, j.ID, 3)
							return err
						})
						cancel()
						if w.Clean(err) != nil {
							w.Errorf("Drop: %v", err)
						}
						if did {
							mu.Lock()
							dropped[j.ID]++
							mu.Unlock()
						}
					}
				})
				for _, j := range list {
					if dropped[j.ID] != 1 {
						w.Errorf("%d callers dropped job %d", dropped[j.ID], j.ID)
					}
				}
			},
		},
	}
}

// optional returns tx as a T. It panics if tx is not one.
func optional[T any](tx jobstore.Tx) T {
	t, ok := capability.As[T](tx)
	if !ok {
		panic("the promise of the harness is wrong")
	}
	return t
}
