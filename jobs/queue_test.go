package jobs_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
)

// TestQueueExamples runs the documented examples of throttling.
// Promises: Q17, Q19, Q20, Q21, Q22, Q25, Q27.
func TestQueueExamples(t *testing.T) {
	t.Parallel()
	t.Run("limit 10 and weight 2 are 5 jobs", func(t *testing.T) {
		t.Parallel()
		inQueue(t, func(w *world) {
			for range 8 {
				w.enqueued("a", 2000)
			}
			l := w.lead(queue.Queue{Limit: 10}, "n")
			out := w.starts(l, times(5, "a")...)
			w.over(out[0].ID)
			w.starts(l, "a")
		})
	})
	for strict, want := range map[bool][]string{false: {"one"}, true: nil} {
		t.Run("9 run, 2 and 1 wait", func(t *testing.T) {
			t.Parallel()
			inQueue(t, func(w *world) {
				w.enqueued("nine", 9000)
				l := w.lead(queue.Queue{Limit: 10, Strict: strict}, "n")
				w.starts(l, "nine")
				w.enqueued("two", 2000)
				w.enqueued("one", 1000)
				w.starts(l, want...)
			})
		})
	}
	t.Run("4, 4, 4, 2, 1 of 10 are a, b, d", func(t *testing.T) {
		t.Parallel()
		inQueue(t, func(w *world) {
			for i, weight := range []int64{4000, 4000, 4000, 2000, 1000} {
				w.enqueued(string(rune('a'+i)), weight)
			}
			w.starts(w.lead(queue.Queue{Limit: 10}, "n"), "a", "b", "d")
		})
	})
	t.Run("12 of 10 runs alone", func(t *testing.T) {
		t.Parallel()
		inQueue(t, func(w *world) {
			w.enqueued("small", 1000)
			w.enqueued("huge", 12_000)
			w.enqueued("critical", 0)
			l := w.lead(queue.Queue{Limit: 10}, "n")
			out := w.starts(l, "small", "critical")
			second := w.enqueued("small", 1000)
			w.starts(l, "small")
			w.over(out[0].ID)
			w.starts(l)
			w.over(second)
			huge := w.starts(l, "huge")
			w.enqueued("small", 1000)
			w.enqueued("critical", 0)
			w.starts(l, "critical")
			w.over(huge[0].ID)
			w.starts(l, "small")
		})
	})
	t.Run("regions", func(t *testing.T) {
		t.Parallel()
		inQueue(t, func(w *world) {
			for range 39 {
				w.enqueued("east", 1000)
			}
			l := w.lead(queue.Queue{Limit: 100, Throttler: queue.Shares(shareOf, map[string]float64{"east": 40, "west": 30, "north": 30})}, "n")
			w.starts(l, times(39, "east")...)
			for range 5 {
				w.enqueued("east", 1000)
			}
			for range 5 {
				w.enqueued("north", 1000)
			}
			w.starts(l, append([]string{"east"}, times(5, "north")...)...)
		})
	})
}

// TestQueueOrder shows the start order of jobs for both orders.
// Promises: Q14, Q15, Q16, Q17.
func TestQueueOrder(t *testing.T) {
	t.Parallel()
	for order, want := range map[jobs.Order][]string{
		jobs.TimeFirst:     {"700", "50", "100", "1", "7"},
		jobs.PriorityFirst: {"1", "7", "50", "100", "700"},
	} {
		for _, limit := range []float64{0, 1} {
			inQueue(t, func(w *world) {
				hour := time.Now().Add(-time.Hour)
				for _, j := range []struct{ priority, minute int }{{1, 40}, {7, 40}, {50, 33}, {100, 33}, {700, 32}} {
					w.enqueue(jobs.Row{Job: jobs.Job{Name: strconv.Itoa(j.priority), Priority: j.priority, Weight: 1000, NextRun: hour.Add(time.Duration(j.minute) * time.Minute)}})
				}
				l := w.lead(queue.Queue{Limit: limit, Order: order}, "n")
				var got []string
				for range want {
					out := w.now(l)
					for _, h := range out {
						got = append(got, h.Name)
						w.over(h.ID)
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("order %d, limit %v: %v, want %v", order, limit, got, want)
				}
			})
		}
	}
}
