package runner_test

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/task"
)

// TestTypeDefaultsReachJobsMadeByName shows that the defaults of a registered type apply to jobs
// that are created without it, unless their Spec sets the fields (Q44).
// Promises: Q14.
func TestTypeDefaultsReachJobsMadeByName(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		kind := shipping(func(ctx, parcelOf) error { return nil })
		kind.Priority, kind.Weight, kind.Timeout, kind.Windows = task.Set(7), task.Set(2.5), time.Hour, mustWindows(t, "12:00-13:00", nil)
		register(t, s.runner(runner.Config{Queue: &queue.Queue{Name: "q"}}), kind)
		shorter := mustWindows(t, "06:00-07:00", nil)
		for what, c := range map[string]struct {
			spec     jobs.Spec
			priority int
			weight   int64
			timeout  time.Duration
			window   string
		}{
			"by name":      {jobs.Spec{Queue: "q"}, 7, 2500, time.Hour, kind.Windows.String()},
			"in no queue":  {jobs.Spec{}, 7, 0, 0, ""},
			"its own":      {jobs.Spec{Queue: "q", Priority: task.Set(0), Weight: task.Set(0.0), Timeout: task.Set(time.Duration(0)), Windows: shorter}, 0, 0, 0, shorter.String()},
			"another name": {jobs.Spec{Name: "other", Queue: "q"}, 100, 1000, jobs.DefaultAttemptTimeout, ""},
		} {
			if c.spec.Name == "" {
				c.spec.Name = kind.Name
			}
			j := s.job(s.put(c.spec))
			if j.Priority != c.priority || j.Weight != c.weight || j.Timeout != c.timeout || j.Window != c.window {
				t.Errorf("%s: priority %d, weight %d, timeout %v, windows %q", what, j.Priority, j.Weight, j.Timeout, j.Window)
			}
			if what == "by name" && j.NextRun.Hour() != 12 {
				t.Errorf("%s: to run at %v", what, j.NextRun)
			}
		}
		endless := kind
		endless.Name, endless.Timeout, endless.Priority, endless.Weight, endless.Windows = "endless", -1, task.Opt[int]{}, task.Opt[float64]{}, nil
		register(t, s.runner(runner.Config{Queue: &queue.Queue{Name: "q"}}), endless)
		if j := s.job(s.put(jobs.Spec{Name: "endless", Queue: "q"})); j.Timeout != 0 || j.Priority != jobs.DefaultPriority || j.Weight != 1000 {
			t.Errorf("%+v", j)
		}
	})
}
