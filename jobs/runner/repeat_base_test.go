package runner_test

import (
	"errors"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/task"
)

// TestRetriesKeepTheBase shows that a retry in a queue does not move the later runs of a repeat
// that counts from SCHEDULED.
func TestRetriesKeepTheBase(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		d := newDiary()
		r := s.runner(runner.Config{Queue: &queue.Queue{Name: "q"}, Workers: 1})
		attempt := 0
		handle(t, r, sum, func(_ ctx, at state) (state, error) {
			if attempt++; attempt%2 == 1 {
				d.note("retried")
				return at, task.Retry(errors.New("not yet"), task.After(7*time.Second))
			}
			d.note("ran")
			return at, nil
		})
		// first: the leader looks for jobs at most once in some milliseconds
		s.put(jobs.Spec{Name: "sum", Queue: "q", Repeat: "SCHEDULED, +1 HOUR"})
		s.run(r)
		time.Sleep(2*time.Hour + time.Minute)
		d.want(t, "0s: retried", "7s: ran", "1h0m0s: retried", "1h0m7s: ran", "2h0m0s: retried", "2h0m7s: ran")
	})
}
