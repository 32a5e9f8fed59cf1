package consumer_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
)

// TestLimitedTasksStarveNobody (S19): whatever the prefetch, tasks without a limit get through at once behind many that have one,
// and none of these starts before its time or is lost.
func TestLimitedTasksStarveNobody(t *testing.T) {
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

// TestSetRateLimit: it holds at once, also for tasks that wait, and can be taken back.
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
		must0(t, c.SetRateLimit("hold", "1/h")) // before Run, and over no limit at all
		h.b.run()
		h.submit(0, 10)
		count := func(why string, want int) {
			t.Helper()
			if n := len(h.runs()); n != want {
				t.Errorf("%s: %d runs, want %d", why, n, want)
			}
		}
		count("1/h", 1)
		time.Sleep(time.Minute)
		count("a minute later", 1)
		must0(t, c.SetRateLimit("hold", "1/s"))
		time.Sleep(3*time.Second + time.Millisecond)
		count("3 s at 1/s", 4)
		must0(t, c.SetRateLimit("hold", consumer.RateDefault))
		count("without a limit", 10)
		h.submit(10, 5, task.WithRateLimit("1/h"))
		count("as the metadata say", 11)
		must0(t, c.SetRateLimit("hold", ""))
		count("no limit over the metadata", 15)
		h.b.end()
	})
}

// TestLimitedTasksGoBack: a pause and a stop give back what waits for its rate, and one that expired while it waited does not run.
func TestLimitedTasksGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolding(t, consumer.QueueConfig{Workers: 2, Prefetch: 6})
		close(h.release)
		h.b.run()
		h.submit(0, 5, task.WithRateLimit("1/m"))
		h.want(0, 0)
		if n := h.b.c.Stats().Reserved; n != 4 {
			t.Errorf("%d wait", n)
		}
		must0(t, h.b.c.Pause())
		h.want(0, 4)
		must0(t, h.b.c.Resume())
		h.want(0, 0)
		h.submit(5, 1, task.WithRateLimit("1/m"), task.WithExpires(time.Now().Add(time.Second)))
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

var _ consumer.Pool = spawner{}
