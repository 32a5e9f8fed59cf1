package jobs_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/queue"
)

func TestThrottlerThatFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, fail := range map[string]func() error{
		"error": func() error { return broken },
		"panic": func() error { panic("oh no") },
		"exit":  func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inQueue(t, func(w *world) {
				bad := true
				throttler := queue.ThrottlerFunc(func(_ context.Context, l *queue.Admission) error {
					for j := range l.Due() {
						if j.Name == "later" {
							l.Later(j, l.Now().Add(time.Hour))
						} else if !l.Start(j) {
							t.Error("not started")
						}
					}
					if bad {
						return fail()
					}
					return nil
				})
				var told []error
				l := w.leadWith(queue.Queue{Throttler: throttler}, "n", nil, func(err error) { told = append(told, err) })
				id := w.enqueued("a", 1000)
				later := w.enqueued("later", 1000)
				closed := w.enqueue(jobs.Row{Job: jobs.Job{Window: "WINDOWS 12:00-13:00"}})
				before := w.job(later)
				w.starts(l)
				if len(told) == 0 || !strings.Contains(told[0].Error(), `queue "q"`) {
					t.Fatalf("told %v", told)
				}
				w.state(jobs.Queued, id)
				if diff := diffJobs(before, w.job(later)); diff != "" {
					t.Fatal("what a throttler that failed put off was changed: ", diff)
				}
				w.next(closed, "2000-01-01T12:00:00Z") // the throttler does not decide this
				bad = false
				n := len(told)
				// the next admission comes after Poll
				if got := w.within(l, 6*time.Second); !slices.Equal(namesOf(got), []string{"a"}) {
					t.Fatalf("%v", namesOf(got))
				}
				if len(told) != n {
					t.Fatalf("told %v", told)
				}
			})
		})
	}
}

func TestSlowThrottler(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		throttler := queue.ThrottlerFunc(func(ctx context.Context, l *queue.Admission) error {
			<-ctx.Done()
			for j := range l.Due() {
				l.Start(j)
			}
			return nil
		})
		l := w.lead(queue.Queue{Throttler: throttler}, "n")
		other := w.lead(queue.Queue{}, "other")
		w.over(w.enqueued("a", 1000))
		w.first(l, time.Minute)
		got := w.standBy(other)
		synctest.Wait()
		w.enqueued("a", 1000)
		if first := w.first(l, time.Minute); len(first) != 1 {
			t.Fatalf("%d jobs", len(first))
		}
		w.ok(w.Withdraw(w.Context(), w.enqueued("b", 1000))) // no transaction is open during Admit
		w.first(l, time.Minute)
		select {
		case <-got:
			t.Fatal("another one took over although the lease was renewed")
		default:
		}
	})
}

// TestLaterIsKept shows that the time of Later is stored.
// Promises: Q24.
func TestLaterIsKept(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		at := time.Now().Add(90 * time.Minute)
		throttler := queue.ThrottlerFunc(func(_ context.Context, l *queue.Admission) error {
			for j := range l.Due() {
				l.Later(j, l.Now().Add(-time.Second)) // no effect
				l.Later(j, at)
				l.Later(j, at.Add(time.Hour)) // only the first call counts
				if l.Start(j) {
					t.Error("started what is put off")
				}
			}
			l.Later(jobs.Job{ID: 77}, at)
			if l.Start(jobs.Job{ID: 77}) {
				t.Error("started what was not shown")
			}
			return nil
		})
		l := w.lead(queue.Queue{Throttler: throttler}, "n")
		free := w.enqueue(jobs.Row{Job: jobs.Job{Attempt: 2}, Run: 4, Token: 5})
		boxed := w.enqueue(jobs.Row{Job: jobs.Job{Window: "WINDOWS 00:00-01:00, 12:00-13:00"}})
		w.starts(l)
		w.next(free, "2000-01-01T01:30:00Z")
		w.next(boxed, "2000-01-01T12:00:00Z")
		if j := w.job(free); j.Attempt != 2 || j.Run != 4 || j.Token != 5 || j.State != jobs.Queued {
			t.Fatalf("%+v", j)
		}
	})
}

// TestLookShowsWhatRuns shows that Running returns copies of the running jobs, with those that this
// call starts, and without ended jobs.
// Promises: Q24.
func TestLookShowsWhatRuns(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		var seen []string
		throttler := queue.ThrottlerFunc(func(_ context.Context, l *queue.Admission) error {
			if l.Queue().Name != "q" || l.Now().IsZero() {
				t.Error("the look does not know its queue or time")
			}
			for j := range l.Due() {
				for range 2 { // the second call has no effect
					if !l.Start(j) {
						t.Error("not started")
					}
				}
				l.Later(j, l.Now().Add(time.Hour)) // it was started
			}
			for range l.Due() {
				t.Error("a job is shown again that was started")
			}
			seen = nil
			for _, j := range l.Running() {
				seen = append(seen, j.Name+string(j.Data))
				j.Data[1] = 'X'
			}
			return nil
		})
		l := w.lead(queue.Queue{Throttler: throttler}, "n")
		a := w.enqueue(jobs.Row{Job: jobs.Job{Name: "a", Data: []byte(`{"n":1}`)}})
		w.starts(l, "a")
		b := w.enqueue(jobs.Row{Job: jobs.Job{Name: "b", Data: []byte(`{"n":2}`)}})
		w.starts(l, "b")
		if !slices.Equal(seen, []string{`a{"n":1}`, `b{"n":2}`}) {
			t.Fatalf("seen %v", seen)
		}
		w.over(a)
		w.starts(l)
		if !slices.Equal(seen, []string{`b{"n":2}`}) {
			t.Fatalf("seen %v", seen)
		}
		// Another leader reads the job from the store, with its changes.
		w.modify(b, func(j *jobs.Row) { j.Data = []byte(`{"n":3}`) })
		l.Close(w.Context())
		w.enqueued("c", 0)
		w.starts(w.lead(queue.Queue{Throttler: throttler}, "m"), "c")
		if !slices.Equal(seen, []string{`b{"n":3}`, "c{}"}) {
			t.Fatalf("seen %v", seen)
		}
	})
}

// TestShares shows which jobs start with shares.
// Promises: Q25, Q26.
func TestShares(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		l := w.lead(queue.Queue{Limit: 10, Throttler: queue.Shares(shareOf, map[string]float64{"east": 4, "west": 2.5, "shut": 0})}, "n")
		for _, j := range []struct {
			name   string
			weight int64
		}{
			{"east.a", 3000},
			{"east.b", 2000}, // does not fit beside a
			{"east.c", 1000},
			{"east.critical", 0},
			{"west.huge", 5000}, // heavier than its share: alone in it
			{"west.a", 500},
			{"shut.a", 100},
			{"shut.critical", 0},
			{"other.a", 1000}, // only the limit applies
			{"other.b", 1000}, // the limit is reached
		} {
			w.enqueued(j.name, j.weight)
		}
		out := w.starts(l, "east.a", "east.c", "east.critical", "west.huge", "shut.critical", "other.a")
		w.over(out[3].ID)
		w.starts(l, "west.a", "other.b")
		w.over(out[0].ID)
		w.starts(l, "east.b")
	})
}

// TestSharesKnowWhatAnAnswerStarts shows that a job that an answer makes run again counts in its
// share.
func TestSharesKnowWhatAnAnswerStarts(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		l := w.lead(queue.Queue{Throttler: queue.Shares(shareOf, map[string]float64{"east": 1, "west": 1})}, "n")
		again := w.enqueue(jobs.Row{Job: jobs.Job{Name: "east.again", Weight: 1000, Key: "k", Attempt: 1, NextRun: time.Now().UTC().Add(time.Hour)}, Respond: true, Run: 1})
		w.enqueued("west.a", 1000)
		out := w.starts(l, "west.a")
		w.over(out[0].ID) // the number of running jobs is the same as before
		w.complete("east.again", "k", 1, jobs.Accepted)
		w.enqueued("east.next", 1000)
		w.starts(l, "east.again")
		w.over(again)
		w.starts(l, "east.next")
	})
}

// TestManyWaitInAFullShare puts the jobs of a full share before all others.
func TestManyWaitInAFullShare(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		for range 3000 {
			w.enqueued("east", 1000)
		}
		w.enqueued("north", 1000)
		l := w.lead(queue.Queue{Throttler: queue.Shares(shareOf, map[string]float64{"east": 2, "north": 1})}, "n")
		w.starts(l, "east", "east", "north")
	})
}

// TestManyRun shows a throttler more than two pages of running jobs that end elsewhere.
func TestManyRun(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		const all = 2300
		var ids []jobs.ID
		for range all {
			ids = append(ids, w.enqueued("a", 1000))
		}
		l := w.lead(queue.Queue{Throttler: queue.Shares(shareOf, map[string]float64{"a": all})}, "n")
		w.starts(l, times(all, "a")...)
		w.over(ids[:1200]...)
		w.over(ids[2250:]...)
		for range 1300 {
			w.enqueued("a", 1000)
		}
		w.starts(l, times(1250, "a")...) // all ended jobs are noticed, however long the list is
	})
}

func TestWindowsAtAdmission(t *testing.T) {
	t.Parallel()
	for _, th := range []queue.Throttler{nil, queue.Shares(shareOf, nil)} {
		inQueue(t, func(w *world) { // the clock starts at midnight
			l := w.lead(queue.Queue{Limit: 1, Strict: true, Throttler: th, Poll: time.Minute}, "n")
			shut := w.enqueue(jobs.Row{Job: jobs.Job{Name: "shut", Weight: 1000, Window: "WINDOWS 09:00-17:00", Attempt: 1, Reason: "it was"}})
			open := w.enqueue(jobs.Row{Job: jobs.Job{Name: "open", Weight: 1000, Window: "WINDOWS 22:00-06:00"}})
			w.starts(l, "open") // the job before it does not block it, although the queue is strict
			w.next(shut, "2000-01-01T09:00:00Z")
			if j := w.job(shut); j.Attempt != 1 || j.Run != 0 || j.Token != 0 || j.Reason != "it was" || j.State != jobs.Queued {
				t.Fatalf("%+v", j)
			}
			w.over(open)
			got := w.first(l, 24*time.Hour)
			if at := time.Now().UTC(); !slices.Equal(namesOf(got), []string{"shut"}) || at.Hour() != 9 || at.Minute() != 0 {
				t.Fatalf("%v started at %v", namesOf(got), at)
			}
		})
	}
}

// slowStore delays each read of a page.
type slowStore struct{ jobs.Store }

func (s slowStore) View(ctx context.Context, fn func(context.Context, jobstore.Tx) error) error {
	time.Sleep(50 * time.Millisecond)
	return s.Store.View(ctx, fn)
}

// TestLongLineIsReadInParts puts thousands of jobs of a full share before all others, with slow
// reads.
func TestLongLineIsReadInParts(t *testing.T) {
	t.Parallel()
	for _, churn := range []bool{false, true} {
		inQueue(t, func(w *world) {
			for range 5000 {
				w.enqueued("east", 1000)
			}
			w.enqueued("north", 1000)
			slow, err := jobs.New(jobs.Config{Store: slowStore{w.store}})
			w.ok(err)
			s := &world{w.T, slow, w.store}
			l := s.lead(queue.Queue{Throttler: queue.Shares(shareOf, map[string]float64{"east": 2, "north": 1})}, "n")
			began := time.Now()
			out := s.first(l, time.Minute)
			if took := time.Since(began); !slices.Equal(namesOf(out), []string{"east", "east"}) || took > 400*time.Millisecond {
				t.Fatalf("%v after %v", namesOf(out), took)
			}
			for !slices.Contains(namesOf(out), "north") {
				if churn { // each admission can start a job
					w.over(out[0].ID)
				}
				out = s.first(l, time.Minute)
				if took := time.Since(began); took > 20*time.Second {
					t.Fatalf("the last job of the line waits since %v", took)
				}
			}
		})
	}
}
