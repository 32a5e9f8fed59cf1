package consumer_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// TestAdmit shows that a refused task is put back or fails without a start, also if it runs at most
// once. Each admission is released once.
func TestAdmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, taken, released atomic.Int64
		refusals := errors.New("never")
		b := newTable(t, func(c *consumer.Config) {
			first := func(context.Context, *task.Request) (func(), error) {
				taken.Add(1)
				return func() { released.Add(1) }, nil
			}
			second := func(_ context.Context, r *task.Request) (func(), error) {
				switch n := asked.Add(1); {
				case r.Correlation == "never":
					return nil, refusals
				case r.Correlation == "panic":
					panic("admit")
				case n <= 2:
					return nil, task.Snooze(time.Minute)
				}
				return nil, nil
			}
			c.Admit = []middleware.Admit{first, second}
		})
		b.run()
		begin := time.Now()
		f := b.submit(7, task.WithIdempotent(false))
		if got, err := f.Get(t.Context()); err != nil || got != 7 || b.runs.Load() != 1 {
			t.Fatal(got, err, b.runs.Load())
		}
		if waited := time.Since(begin); waited < 2*time.Minute {
			t.Errorf("started after %s, it was put back twice for a minute", waited)
		}
		if started := b.metrics.Started.Count(); started != 1 {
			t.Errorf("%d starts are counted, want 1", started)
		}
		for correlation, want := range map[string]error{"never": refusals, "panic": task.ErrPanic} {
			_, err := b.submit(8, task.WithCorrelation(correlation)).Get(t.Context())
			if err == nil || want == task.ErrPanic && !errors.Is(err, want) { //nolint:errorlint // same
				t.Errorf("%s: %v", correlation, err)
			}
		}
		synctest.Wait()
		if b.runs.Load() != 1 || taken.Load() != 5 || released.Load() != 5 {
			t.Errorf("%d runs, taken %d times and released %d times; want 1, 5 and 5", b.runs.Load(), taken.Load(), released.Load())
		}
		b.end()
	})
}

// TestReleaseFails shows that the release of an admission may panic or end its goroutine. The other
// releases run, and a task that runs at most once keeps its result.
func TestReleaseFails(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic("release") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var released atomic.Int64
				b := newTable(t, func(c *consumer.Config) {
					admit := func(context.Context, *task.Request) (func(), error) {
						return func() { released.Add(1); fail() }, nil
					}
					c.Admit = []middleware.Admit{admit, admit, admit}
				})
				b.run()
				for i := range 20 { // more than there are workers
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					if got, err := b.submit(i, task.WithIdempotent(false)).Get(ctx); err != nil || got != i {
						t.Errorf("task %d: %d, %v", i, got, err)
					}
					cancel()
				}
				if n := released.Load(); n != 60 {
					t.Errorf("%d releases, want 60", n)
				}
				b.end()
			})
		})
	}
}
