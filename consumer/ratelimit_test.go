package consumer_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
)

// TestLimitedTasksDoNotBlockOthers (S19) shows that tasks without a limit run at once behind many
// tasks with one, for any prefetch. No limited task starts too early or is lost.
func TestLimitedTasksDoNotBlockOthers(t *testing.T) {
	for _, q := range []consumer.QueueConfig{{Workers: 2, Prefetch: 1}, {Workers: 2, PrefetchMultiplier: 1}, {Workers: 2}, {Workers: 2, Prefetch: -1}} {
		synctest.Test(t, func(t *testing.T) {
			h := newHolding(t, q)
			close(h.release)
			begin := time.Now()
			h.submit(0, 50, task.WithRateLimit("12/m"))
			h.b.run()
			if got, err := h.b.submit(7).Get(t.Context()); err != nil || got != 7 {
				t.Errorf("%d, %v", got, err)
			}
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("%+v: a task without a limit waited %s behind those that have one", q, took)
			}
			for len(h.runs()) < 50 {
				time.Sleep(time.Second)
				if since := time.Since(begin); h.count() > 1+int(since/(5*time.Second)) {
					t.Fatalf("%d runs after %s", h.count(), since)
				}
				if time.Since(begin) > time.Hour {
					t.Errorf("%+v: %d of 50 have run after an hour", q, h.count())
					break
				}
			}
			if took := time.Since(begin); took > 10*time.Minute {
				t.Errorf("%+v: 50 tasks at one each 5 s took %s", q, took)
			}
			if h.b.metrics.Crashes.Count() != 0 || h.b.metrics.Retried.Count() != 0 {
				t.Error("waiting was counted as something else")
			}
			h.b.end()
		})
	}
}

// TestSetRateLimit shows that a new limit applies at once, also to waiting tasks, and that it can
// be removed.
func TestSetRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolding(t, consumer.QueueConfig{Workers: 2, Prefetch: 100})
		close(h.release)
		c := h.b.c
		if err := c.SetRateLimit("hold", "often"); !errors.Is(err, task.ErrBadMetadata) {
			t.Errorf("a rate that is none: %v", err)
		}
		if err := c.SetRateLimit("nobody", "1/s"); !errors.Is(err, task.ErrUnknownTask) {
			t.Errorf("a task that is none: %v", err)
		}
		must0(t, c.SetRateLimit("hold", "12/m")) // before Run, for a task without a limit
		h.b.run()
		h.submit(0, 10)
		count := func(why string, want int) {
			t.Helper()
			if n := len(h.runs()); n != want {
				t.Errorf("%s: %d runs, want %d", why, n, want)
			}
		}
		count("12/m", 1)
		time.Sleep(4 * time.Second)
		count("4 s later", 1)
		must0(t, c.SetRateLimit("hold", "1/s"))
		time.Sleep(3*time.Second + time.Millisecond)
		count("3 s at 1/s", 4)
		must0(t, c.SetRateLimit("hold", consumer.RateDefault))
		count("without a limit", 10)
		h.submit(10, 5, task.WithRateLimit("12/m"))
		count("as the metadata say", 11)
		must0(t, c.SetRateLimit("hold", ""))
		count("no limit over the metadata", 15)
		h.b.end()
	})
}

// TestLimitedTasksGoBack shows that a pause and a stop give back the tasks that wait for their
// rate. A task that expires meanwhile does not run.
func TestLimitedTasksGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolding(t, consumer.QueueConfig{Workers: 2, Prefetch: 6})
		close(h.release)
		h.b.run()
		h.submit(0, 5, task.WithRateLimit("6/m"))
		h.want(0, 0)
		if n, s := h.b.c.Stats().Reserved, h.held(); n != 3 || s.Delayed != 1 {
			t.Errorf("%d wait here, %d in the broker, want half the prefetch, 3, and the last one", n, s.Delayed)
		}
		must0(t, h.b.c.Pause())
		h.want(0, 3)
		must0(t, h.b.c.Resume())
		h.want(0, 0)
		h.submit(5, 1, task.WithRateLimit("6/m"), task.WithExpires(time.Now().Add(time.Second)))
		time.Sleep(30 * time.Minute)
		if n := len(h.runs()); n != 5 || h.b.metrics.Expired.Count() != 1 {
			t.Errorf("%d runs, %d expired", n, h.b.metrics.Expired.Count())
		}
		h.submit(6, 3, task.WithRateLimit("1/h"))
		synctest.Wait()
		h.b.end()
		if s := h.held(); s.Ready+s.Delayed != 2 || s.Held != 0 {
			t.Errorf("after the stop: %+v", s)
		}
	})
}

// TestRateStartsWithoutABurst (S19) shows that at most the tokens of 100 ms, at least one, can
// start at once.
func TestRateStartsWithoutABurst(t *testing.T) {
	for limit, want := range map[string]int{"5/s": 1, "10/s": 1, "50/s": 5, "6000/m": 10, "3600/h": 1} {
		synctest.Test(t, func(t *testing.T) {
			h := newHolding(t, consumer.QueueConfig{Workers: 2, Prefetch: 400})
			close(h.release)
			h.b.run()
			h.submit(0, 100, task.WithRateLimit(limit))
			if n := len(h.runs()); n != want {
				t.Errorf("%s: %d of 100 tasks start at once, want %d", limit, n, want)
			}
			h.b.end()
		})
	}
}

// TestLimitedTasksArePutBackOnce (S19) shows that tasks over the limit wait here for at most a
// minute and in at most half the prefetch. Each other task is put back once and starts at its start
// time, although new tasks keep coming.
func TestLimitedTasksArePutBackOnce(t *testing.T) {
	for _, q := range []consumer.QueueConfig{{Workers: 2, Prefetch: 1}, {Workers: 2, Prefetch: 8}, {Workers: 2, Prefetch: -1}} {
		synctest.Test(t, func(t *testing.T) {
			const tasks = 60
			h := newHolding(t, q)
			close(h.release)
			h.b.run()
			begin := time.Now()
			h.submit(0, tasks/2, task.WithRateLimit("12/m"))
			for i := tasks / 2; i < tasks; i++ {
				time.Sleep(7 * time.Second)
				h.submit(i, 1, task.WithRateLimit("12/m"))
				synctest.Wait()
				reserved := h.b.c.Reserved()
				if len(reserved) > q.Prefetch/2 && q.Prefetch > 0 {
					t.Errorf("%d wait here with a prefetch of %d", len(reserved), q.Prefetch)
				}
				for _, r := range reserved {
					if since := time.Since(r.Since); since > time.Minute {
						t.Errorf("a task has waited here for %s", since)
					}
				}
			}
			for len(h.runs()) < tasks && time.Since(begin) < time.Hour {
				time.Sleep(time.Second)
			}
			if took := time.Since(begin); took > tasks*5*time.Second {
				t.Errorf("%+v: %d tasks at one each 5 s took %s", q, tasks, took)
			}
			if n := h.b.metrics.Received.Count(); n > 2*tasks {
				t.Errorf("%+v: %d tasks were received %d times", q, tasks, n)
			}
			h.b.end()
		})
	}
}

// TestStartTimesOfTasksThatNeverCome shows that new tasks do not wait for the start times of
// put-back tasks that expire or end elsewhere.
func TestStartTimesOfTasksThatNeverCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolding(t, consumer.QueueConfig{Workers: 2, Prefetch: 8})
		close(h.release)
		h.b.run()
		h.submit(0, 60, task.WithRateLimit("1/m"), task.WithExpires(time.Now().Add(2*time.Minute)))
		time.Sleep(10 * time.Minute)
		before := len(h.runs())
		h.submit(60, 1, task.WithRateLimit("1/m"))
		time.Sleep(3 * time.Minute)
		if len(h.runs()) != before+1 {
			t.Errorf("a task has not started 3 minutes after it was submitted, nor has any other in the last 8")
		}
		h.b.end()
	})
}

var _ consumer.Pool = spawner{}
