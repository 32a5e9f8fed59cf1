package tasktest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// misused are tests that have to fail, and with what words.
var misused = map[string]struct {
	test func(*testing.T, *tasktest.Swarm)
	says []string
}{
	"a result that nobody will give": {
		func(t *testing.T, s *tasktest.Swarm) {
			future := must(double.Submit(t.Context(), s, 1))
			_, _ = future.Get(t.Context())
		},
		[]string{"tasktest: the test has waited for a month of its clock", "queue default has 1 tasks ready, 0 taken, 0 delayed and no consumer"},
	},
	"a handler that never returns": {
		func(t *testing.T, s *tasktest.Swarm) {
			s.Start(consumer.Config{}, func(r task.Registrar) error {
				return double.Handle(r, func(ctx context.Context, _ int) (int, error) { <-ctx.Done(); return 0, nil })
			})
			must(double.Submit(t.Context(), s, 1))
			s.Drain()
		},
		[]string{"tasktest: Drain waits in vain: 1 handlers run"},
	},
	"a task that submits itself": {
		func(t *testing.T, s *tasktest.Swarm) {
			s.Start(consumer.Config{}, func(r task.Registrar) error {
				return double.Handle(r, func(ctx context.Context, n int) (int, error) {
					if n == 1 && os.Getenv("SWARMIJI_THOROUGH") == "" {
						tasktest.AddAttempts(s, 98_000) // the others are run
					}
					_, err := double.Submit(ctx, s, n+1, task.WithIgnoreResult(true))
					return 0, err
				})
			})
			must(double.Submit(t.Context(), s, 1))
			s.Drain()
		},
		[]string{"100000 attempts since the last Drain, DrainAll or Advance, the last one of double: a loop"},
	},
	"a bad configuration": {
		func(_ *testing.T, s *tasktest.Swarm) {
			s.Start(consumer.Config{ShutdownTimeout: 1, Tuning: consumer.Tuning{AbsentAfter: 1}}, register)
		},
		[]string{"tasktest: consumer: ", "AbsentAfter"},
	},
	"a handler that cannot be registered": {
		func(_ *testing.T, s *tasktest.Swarm) {
			s.Start(consumer.Config{}, func(r task.Registrar) error { return errors.Join(register(r), register(r)) })
		},
		[]string{"tasktest: register handlers: ", "a handler of this name is registered already"},
	},
	"a submission that is missing": {
		func(t *testing.T, s *tasktest.Swarm) {
			must(double.Submit(t.Context(), s, 1))
			must(double.Submit(t.Context(), s, 2, task.WithDelay(time.Hour)))
			must(flaky.Submit(t.Context(), s, 2))
			tasktest.RequireSubmitted(t, s, double, tasktest.Like(3))
		},
		[]string{"0 submissions of double match, want 1; submitted were:", "double(1) to queue default\n", "double(2) to queue default with delay 1h0m0s", "flaky to queue default"},
	},
	"a submission that is refused": {
		func(t *testing.T, s *tasktest.Swarm) {
			must(double.Submit(t.Context(), s, 1))
			tasktest.RequireNotSubmitted(t, s, double)
		},
		[]string{"1 submissions of double match, want none; submitted were:"},
	},
	"a queue that nobody made": {
		func(_ *testing.T, s *tasktest.Swarm) {
			tasktest.Work(s, double, handleDouble, 1, task.WithQueue("no such name"))
		},
		[]string{"tasktest: consumer: "},
	},
}

// TestMisused fails by intention: TestMisuse runs it.
func TestMisused(t *testing.T) {
	m, ok := misused[os.Getenv("TASKTEST_MISUSE")]
	if !ok {
		t.Skip("TestMisuse runs it")
	}
	tasktest.Run(t, m.test)
}

// What goes wrong in a test ends it, with words that say what.
func TestMisuse(t *testing.T) {
	for name, c := range misused {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := exec.Command(os.Args[0], "-test.run=^TestMisused$")
			program.Env = append(os.Environ(), "TASKTEST_MISUSE="+name)
			out, err := program.CombinedOutput()
			var failed *exec.ExitError
			if !errors.As(err, &failed) {
				t.Fatalf("the test ends with %v:\n%s", err, out)
			}
			for _, says := range c.says {
				if !strings.Contains(string(out), says) {
					t.Errorf("it does not say %q:\n%s", says, out)
				}
			}
		})
	}
}
