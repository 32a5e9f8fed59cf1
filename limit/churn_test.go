package limit_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// counting counts refusals.
type counting struct {
	limit.Limiter
	refusals atomic.Int64
}

func (c *counting) Acquire(ctx context.Context, holder string, lease time.Duration, ps ...limit.Permit) (limit.Decision, error) {
	d, err := c.Limiter.Acquire(ctx, holder, lease, ps...)
	if err == nil && !d.Granted {
		c.refusals.Add(1)
	}
	return d, err
}

// TestRefusalsAreBounded shows that each waiting task is refused only a few times, and that the
// limit is still used well.
func TestRefusalsAreBounded(t *testing.T) {
	for _, tt := range []struct {
		name   string
		permit limit.Permit
		takes  time.Duration
		ideal  time.Duration // of one task, at full use
		tasks  int
	}{
		{"short tasks", limit.Permit{Key: "a", Max: 1}, 10 * time.Millisecond, 10 * time.Millisecond, 300},
		{"tasks of a second", limit.Permit{Key: "a", Max: 1}, time.Second, time.Second, 300},
		{"several at once", limit.Permit{Key: "a", Max: 20}, time.Second, time.Second / 20, 300},
		{"long tasks", limit.Permit{Key: "a", Max: 1}, time.Minute, time.Minute, 50},
		{"a rate", limit.Permit{Key: "a", Rate: 1}, 0, time.Second, 300},
		{"a high rate", limit.Permit{Key: "a", Rate: 100}, 0, time.Second / 100, 300},
		{"a low rate", limit.Permit{Key: "a", Rate: 1, Per: time.Minute}, 0, time.Minute, 50},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &counting{Limiter: limit.NewMemory()}
				took := runAll(t, l, tt.permit, tt.takes, tt.tasks)
				refusals, ideal := int(l.refusals.Load()), time.Duration(tt.tasks)*tt.ideal
				t.Logf("%d tasks: %d refusals; %s instead of %s", tt.tasks, refusals, took, ideal)
				// A long wait is checked once in ten Delays, which is 10 s.
				if bound := 5*tt.tasks + int(ideal/(10*time.Second)); refusals > bound {
					t.Errorf("%d refusals for %d tasks, want %d at most", refusals, tt.tasks, bound)
				}
				if took > 2*ideal+time.Minute {
					t.Errorf("they took %s, and %s at full use of the limit", took, ideal)
				}
			})
		})
	}
}

// runAll runs n tasks that need a permit, and returns the total time.
func runAll(t *testing.T, l limit.Limiter, p limit.Permit, takes time.Duration, n int) time.Duration {
	t.Helper()
	admit, err := limit.Admit(limit.Config{Limiter: l, Tasks: map[string][]limit.Permit{"job": {p}}, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	job := task.New[int, int]("job")
	b, results := membroker.New(), memresults.New(memresults.Config{})
	c, err := consumer.New(consumer.Config{
		Broker: b, Results: results, Admit: []middleware.Admit{admit}, Logger: quiet(),
		Queues: map[string]consumer.QueueConfig{"default": {Workers: 30}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := job.Handle(c, func(_ context.Context, n int) (int, error) {
		time.Sleep(takes)
		return n, nil
	}); err != nil {
		t.Fatal(err)
	}
	pr, err := producer.New(producer.Config{Broker: b, Results: results, Timeout: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	futures, err := job.SubmitAll(t.Context(), pr, make([]int, n))
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }()
	for _, f := range futures {
		if _, err := f.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(begin)
	c.Stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, end := range []func(context.Context) error{pr.Close, results.Close, b.Close} {
		if err := end(t.Context()); err != nil {
			t.Error(err)
		}
	}
	return took
}
