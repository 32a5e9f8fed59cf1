package consumer_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
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
