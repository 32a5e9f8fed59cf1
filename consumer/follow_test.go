package consumer_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// TestPrefetchFollowsTheWork shows that a worker with a long task holds no other task, also if one
// waits for its rate. After the long task the worker gets others at once.
func TestPrefetchFollowsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolding(t, consumer.QueueConfig{Workers: 1})
		prefetch := func(want int) {
			t.Helper()
			time.Sleep(time.Second)
			if n := h.b.c.Stats().Queues[0].Prefetch; n != want {
				t.Errorf("the prefetch is %d, want %d", n, want)
			}
		}
		h.b.run()
		prefetch(4)
		h.submit(0, 2, task.WithRateLimit("1/h")) // the second waits for an hour, without the worker
		prefetch(1)
		h.release <- struct{}{}
		prefetch(4)
		h.submit(2, 1)
		prefetch(1)
		h.release <- struct{}{} // the task that waits fills the prefetch
		h.submit(3, 2)
		prefetch(1)
		if got := h.runs(); !slices.Equal(got, []int{0, 2, 3}) {
			t.Errorf("started: %v", got)
		}
		must0(t, h.b.c.Pause())
		must0(t, h.b.c.Resume())
		if n := h.b.c.Stats().Queues[0].Prefetch; n != 4 {
			t.Errorf("after a pause the prefetch is %d", n)
		}
		prefetch(1)
		must0(t, h.b.c.Scale("default", 2))
		prefetch(2)
		close(h.release)
		prefetch(8)
		time.Sleep(time.Hour)
		if got := h.runs(); !slices.Equal(got, []int{0, 1, 2, 3, 4}) {
			t.Errorf("started: %v", got)
		}
		h.b.end()
	})
}

// TestLongTasksKeepTheSlots shows that long tasks lower the prefetch, but not the number of tasks
// that may be unsettled. While the result store is away, tasks that run at most once start one
// after the other, and each gets its record later.
func TestLongTasksKeepTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolding(t, consumer.QueueConfig{Workers: 1}, func(c *consumer.Config) {
			c.Results = flakyStore{c.Results, time.Now().Add(time.Hour), resultstore.ErrUnavailable}
		})
		h.b.run()
		const n = 4
		var ids []task.ID
		for i := range n {
			f, err := hold.Submit(t.Context(), h.b.p, i, task.WithIdempotent(false), task.WithIgnoreResult(false))
			must0(t, err)
			ids = append(ids, f.ID())
		}
		begin := time.Now()
		for range n {
			time.Sleep(time.Second) // a long task
			h.release <- struct{}{}
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("the last task ended after %s", took)
		}
		close(h.release)
		time.Sleep(3 * time.Hour)
		for i, id := range ids {
			if r, err := h.b.store.Load(t.Context(), id); err != nil || !r.State.Terminal() {
				t.Errorf("task %d: %+v, %v", i, r, err)
			}
		}
		h.b.end()
	})
}

// TestPrefetchThatCannotShrink shows that a consumer tries again to give tasks back, but not all
// the time, if the broker refuses to stop the fetching.
func TestPrefetchThatCannotShrink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		h := newHolding(t, consumer.QueueConfig{Workers: 1}, func(c *consumer.Config) {
			c.Broker = prefetchBroker{c.Broker.(*membroker.Broker), func(ctx context.Context, s broker.Subscription, n int) error {
				if calls.Add(1); n == 0 {
					return broker.ErrUnavailable
				}
				_, err := broker.SetPrefetch(ctx, s, n)
				return err
			}}
		})
		h.b.run()
		h.submit(0, 1)
		time.Sleep(time.Minute)
		first := calls.Load()
		time.Sleep(time.Hour)
		if n := calls.Load(); first < 3 || n <= first || n > 4000 {
			t.Errorf("%d calls in a minute and %d in an hour", first, n)
		}
		close(h.release)
		h.b.end()
	})
}
