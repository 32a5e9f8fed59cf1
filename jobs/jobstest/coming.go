package jobstest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// coming returns the result of Coming for at most most names. An error fails the case at once.
func (w *world) coming(s jobs.Store, since time.Time, most int) jobs.Coming {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	c, err := s.Coming(ctx, since, most)
	w.Must(err, "Coming")
	return c
}

// wantNames fails the case, which continues, unless got has exactly the names want, each once, in
// any order.
func (w *world) wantNames(got []string, want ...string) {
	w.Helper()
	got = slices.Clone(got)
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
		w.Errorf("other names (-want +got):\n%s", diff)
	}
}

// comingCases returns the cases about Store.Coming.
func comingCases() []testCase {
	return []testCase{
		{
			Area: "coming", Name: "nothing",
			Explain: "Coming returns the store's time, and a zero Next if no job has a Due in the future.",
			Run: func(w *world) {
				s := w.Open()
				for _, j := range []func(*jobs.Row){nil, func(*jobs.Row) {}, func(j *jobs.Row) { j.Due, j.State = time.Time{}, jobs.Waiting }} {
					if j != nil {
						w.add(s, "a", j)
					}
					before := w.now(s)
					c := w.coming(s, time.Time{}, 10)
					if after := w.now(s); c.Now.Before(before) || c.Now.After(after) {
						w.Errorf("Now is %v, between %v and %v", c.Now, before, after)
					}
					if len(c.Names) > 0 || c.More || !c.Next.IsZero() {
						w.Errorf("names %v, more %v, next %v", c.Names, c.More, c.Next)
					}
				}
			},
		},
		{
			Area: "coming", Name: "names",
			Explain: "Coming returns the names of jobs whose Due is after since and not after now, each once; a zero since returns none. Jobs with Mock and jobs in any state count, but not jobs of queues.",
			Run: func(w *world) {
				s := w.Open()
				now := w.now(s)
				at := func(d time.Duration) func(*jobs.Row) { return func(j *jobs.Row) { j.Due = now.Add(d) } }
				w.add(s, "long ago", at(-time.Hour))
				w.add(s, "at since", at(-time.Minute))
				w.add(s, "just after", at(-time.Minute+time.Microsecond))
				w.add(s, "twice", at(-time.Second))
				w.add(s, "twice", at(-2*time.Second))
				w.add(s, "a mock", at(-time.Second), func(j *jobs.Row) { j.Mock = true })
				w.add(s, "a lease", at(-time.Second), func(j *jobs.Row) { j.State = jobs.Running })
				w.add(s, "of a queue", at(-time.Second), func(j *jobs.Row) { j.Queue = "q" })
				w.add(s, "ahead", at(time.Hour))
				w.add(s, "none", func(j *jobs.Row) { j.Due = time.Time{} })
				c := w.coming(s, now.Add(-time.Minute), 100)
				w.wantNames(c.Names, "just after", "twice", "a mock", "a lease")
				if c.More {
					w.Error("there are said to be more")
				}
				if c = w.coming(w.Open(), time.Time{}, 100); len(c.Names) > 0 || c.More {
					w.Errorf("without since: %v, more %v", c.Names, c.More)
				}
				if c = w.coming(s, now.Add(24*time.Hour), 100); len(c.Names) > 0 || c.More {
					w.Errorf("since tomorrow: %v, more %v", c.Names, c.More)
				}
			},
		},
		{
			Area: "coming", Name: "most",
			Explain: "Coming returns at most max names, and More reports whether others are due.",
			Run: func(w *world) {
				s := w.Open()
				template := w.job(s, "x")
				var list []jobs.Row
				var all []string
				for i := range 40 {
					j := template
					j.Name = fmt.Sprintf("n%d", i/2)
					list = append(list, j)
					if i%2 == 0 {
						all = append(all, j.Name)
					}
				}
				w.save(s, list...)
				since := template.Due.Add(-time.Second)
				for _, most := range []int{1, 19} {
					c := w.coming(s, since, most)
					distinct := slices.Compact(slices.Sorted(slices.Values(c.Names)))
					if len(c.Names) != most || len(distinct) != most || !c.More {
						w.Errorf("of 20 names at most %d: %v, more %v", most, c.Names, c.More)
					}
				}
				for _, most := range []int{20, 1000} {
					c := w.coming(s, since, most)
					w.wantNames(c.Names, all...)
					if c.More {
						w.Errorf("more than 20 of 20 names, at most %d", most)
					}
				}
			},
		},
		{
			Area: "coming", Name: "next",
			Explain: "Next is the first Due in the future, whatever is due already, so that a waiter can sleep until then. It follows every change.",
			Run: func(w *world) {
				s := w.Open()
				now := w.now(s)
				w.add(s, "due")
				later := w.add(s, "later", func(j *jobs.Row) { j.Due = now.Add(2 * time.Hour) })
				soon := w.add(s, "soon", func(j *jobs.Row) { j.Due, j.State = now.Add(time.Hour), jobs.Running })
				want := func(what string, at time.Time) {
					w.Helper()
					if c := w.coming(s, time.Time{}, 1); !c.Next.Equal(at) || !at.IsZero() && c.Next.Location() != time.UTC {
						w.Errorf("%s: next is %v, not %v", what, c.Next, at)
					}
				}
				want("two ahead", soon.Due)
				w.edit(s, soon.ID, func(j *jobs.Row) { j.Due = time.Time{} })
				want("one ahead", later.Due)
				w.edit(s, later.ID, func(j *jobs.Row) { j.Due = now.Add(3 * time.Hour) })
				want("put off", now.Add(3*time.Hour))
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error { return tx.Delete(ctx, later.ID) })
				want("none ahead", time.Time{})
			},
		},
	}
}

// ear records the notifications of one watcher: pass its wake to Store.Watch. The zero value is
// ready. Safe for concurrent use.
type ear struct {
	mu    sync.Mutex
	calls int
	any   bool
	names map[string]bool
}

// wake records one notification. nil names mean any name. It takes e.mu.
func (e *ear) wake(names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls++
	if names == nil {
		e.any = true
	}
	if e.names == nil {
		e.names = map[string]bool{}
	}
	for _, n := range names {
		e.names[n] = true
	}
}

// heard reports whether a notification so far contained the name, or had nil names, which mean any
// name. It takes e.mu.
func (e *ear) heard(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.any || e.names[name]
}

// count returns the number of notifications so far. It takes e.mu.
func (e *ear) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls
}

// quiet waits until no notification has come for World.Quiet. It fails the case at once if
// World.Patience ends first.
func (e *ear) quiet(w *world) {
	w.Helper()
	last, since := e.count(), time.Now()
	w.Until("it becomes quiet", func() bool {
		if n := e.count(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > w.Quiet
	})
}

// watchCases returns the cases about Store.Watch.
func watchCases() []testCase {
	return []testCase{
		{
			Area: "watch", Name: "wakes",
			Explain: "Watch calls wake after transactions that gave jobs a Due, in any process, with the names of the jobs or with nil for any name. Single calls may be lost, but not all.",
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				for what, by := range map[string]jobs.Store{"its own commits": s, "another's commits": other} {
					var e ear
					stop := s.Watch(e.wake)
					name := "by " + what
					w.Until("a wake-up by "+what, func() bool {
						w.add(by, name)
						return w.soon(func() bool { return e.heard(name) })
					})
					stop()
				}
			},
		},
		{
			Area: "watch", Name: "what wakes",
			Explain: "Watchers are notified of new jobs with a Due and of jobs whose Due was set or changed. A notified process sees the commit.",
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				j := w.add(s, "parked", func(j *jobs.Row) { j.Due, j.State = time.Time{}, jobs.Waiting })
				var e ear
				defer s.Watch(e.wake)()
				for i := range 3 {
					before := e.count()
					w.edit(other, j.ID, func(j *jobs.Row) {
						j.Due, j.State, j.Run = j.Created.Add(time.Duration(i)*time.Millisecond), jobs.Queued, int64(i)
					})
					w.Until("a wake-up", func() bool {
						if e.count() > before && e.heard("parked") {
							return true
						}
						// a notification may be lost
						w.edit(other, j.ID, func(j *jobs.Row) { j.Due = j.Due.Add(time.Microsecond) })
						return w.soon(func() bool { return e.count() > before && e.heard("parked") })
					})
					if got := w.get(s, j.ID); got.Run != int64(i) {
						w.Errorf("who was woken for change %d sees change %d", i, got.Run)
					}
				}
			},
		},
		{
			Area: "watch", Name: "queues",
			Explain: "Watchers are notified of a job of a queue with the word of the queue: when it may start, when it must be handled, and when it has ended.",
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				for by, from := range map[string]jobs.Store{"its own commits": s, "another's commits": other} {
					for i, edit := range []func(*jobs.Row){
						func(*jobs.Row) {},
						func(j *jobs.Row) { j.State, j.Phase, j.Key = jobs.Running, jobs.Answered, "k" },
						func(j *jobs.Row) { j.State, j.Due = jobs.Failed, time.Time{} },
					} {
						queue := fmt.Sprint("by ", by, i)
						j := w.add(s, "a", func(j *jobs.Row) { j.Queue, j.State, j.Due = queue, jobs.Running, j.Created.Add(time.Hour) })
						var e ear
						stop := s.Watch(e.wake)
						w.Until("a wake-up by "+by, func() bool {
							w.save(s, j)
							w.edit(from, j.ID, func(j *jobs.Row) { j.State, j.Due = jobs.Queued, j.Created; edit(j) })
							return w.soon(func() bool { return e.heard(jobstore.QueueWord(queue)) })
						})
						stop()
					}
				}
			},
		},
		{
			Area: "watch", Name: "stop",
			Explain: "stop ends the calls of one watcher and may be called again. Other watchers are still notified.",
			Run: func(w *world) {
				s := w.Open()
				var stopped, kept ear
				stop := s.Watch(stopped.wake)
				defer s.Watch(kept.wake)()
				stop()
				stop()
				stopped.quiet(w)
				before := stopped.count()
				w.Until("the other watcher hears", func() bool {
					w.add(s, "a")
					return w.soon(func() bool { return kept.heard("a") })
				})
				kept.quiet(w)
				if n := stopped.count(); n > before {
					w.Errorf("%d calls after stop", n-before)
				}
			},
		},
		{
			Area: "watch", Name: "closed",
			Explain: "Close also ends the calls. Watch of a closed store does nothing.",
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				var e ear
				stop := s.Watch(e.wake)
				w.Close(s)
				before := e.count()
				s.Watch(e.wake)()
				s.Watch(e.wake)
				w.add(other, "a")
				var heard ear
				defer other.Watch(heard.wake)()
				w.Until("the other store's watcher hears", func() bool {
					w.add(other, "a")
					return w.soon(func() bool { return heard.heard("a") })
				})
				if n := e.count(); n > before {
					w.Errorf("%d calls after Close", n-before)
				}
				stop()
			},
		},
	}
}

// soon calls cond every 5 ms, for at most two seconds, until it returns true. It reports whether
// cond returned true, and does not fail the case.
func (w *world) soon(cond func() bool) bool {
	deadline := time.NewTimer(2 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return false
		}
	}
	return true
}
