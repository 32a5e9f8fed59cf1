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

// fakeBank fails so often, and takes its time for each answer.
type fakeBank struct {
	fails int
	takes time.Duration
}

func (b *fakeBank) Charge(ctx context.Context, _ order) (string, error) {
	select {
	case <-time.After(b.takes):
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if b.fails--; b.fails >= 0 {
		return "", errOverloaded
	}
	return "paid", nil
}

// open starts the shop and its warehouse.
func openShop(s *tasktest.Swarm, b bank) *tasktest.Consumer {
	program := &shop{bank: b, submit: s}
	s.Start(consumer.Config{Queues: map[string]consumer.QueueConfig{"warehouse": {}}}, program.registerWarehouse)
	return s.Start(consumer.Config{}, program.register)
}

// The tests of the shop, as its authors would write them.
func TestShop(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *tasktest.Swarm){
		"an overloaded bank is asked again": func(t *testing.T, s *tasktest.Swarm) {
			openShop(s, &fakeBank{fails: 2})
			future := must(charge.Submit(t.Context(), s, order{Number: 1}))
			s.DrainAll()
			if receipt, err := future.Get(t.Context()); receipt != "paid" || err != nil {
				t.Errorf("the receipt is %q, %v", receipt, err)
			}
		},
		"a charge that is not paid is not shipped": func(t *testing.T, s *tasktest.Swarm) {
			program := &shop{bank: &fakeBank{fails: 1}, submit: s}
			a := tasktest.Work(s, charge, program.charge, order{Number: 1})
			if a.State != task.StateRetrying || a.Delay != time.Minute {
				t.Errorf("the state is %s, with a delay of %v", a.State, a.Delay)
			}
			tasktest.RequireNotSubmitted(t, a, ship)
		},
		"a paid order goes to the warehouse": func(t *testing.T, s *tasktest.Swarm) {
			openShop(s, &fakeBank{})
			must(charge.Submit(t.Context(), s, order{Number: 1}))
			s.Drain()
			tasktest.RequireSubmitted(t, s, ship, tasktest.Like(1, task.WithQueue("warehouse")))
		},
		"a silent bank is not waited for": func(t *testing.T, s *tasktest.Swarm) {
			openShop(s, &fakeBank{takes: time.Hour})
			future := must(charge.Submit(t.Context(), s, order{Number: 1}))
			s.DrainAll()
			if _, err := future.Get(t.Context()); !errors.Is(err, task.ErrTimeLimit) {
				t.Errorf("the error is %v", err)
			}
		},
		"an order is shipped once, also after a crash": func(t *testing.T, s *tasktest.Swarm) {
			openShop(s, &fakeBank{}).CrashAt(tasktest.AfterHandler, charge.Name())
			must(charge.Submit(t.Context(), s, order{Number: 1}))
			s.Drain()
			openShop(s, &fakeBank{})
			s.DrainAll()
			tasktest.RequireSubmitted(t, s, ship)
		},
	} {
		t.Run(name, func(t *testing.T) { tasktest.Run(t, test) })
	}
}

// Each mistake in the shop fails its tests; without one they pass.
func TestSeededBugs(t *testing.T) {
	if bug != "" {
		t.Skip("this is the program with the mistake")
	}
	for bug, says := range map[string]string{
		lostRetry:      `the receipt is "", the bank is overloaded`,
		wrongQueue:     "ship(1) to queue default",
		ignoredContext: "the handler of charge ignores its context",
		twice:          "2 submissions of ship match, want 1",
		"":             "",
	} {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			program := exec.Command(os.Args[0], "-test.run=^TestShop$")
			program.Env = append(os.Environ(), "TASKTEST_BUG="+bug)
			out, err := program.CombinedOutput()
			if bug == "" {
				if err != nil {
					t.Errorf("without a mistake the tests fail: %v\n%s", err, out)
				}
				return
			}
			var failed *exec.ExitError
			if !errors.As(err, &failed) || failed.ExitCode() != 1 || !strings.Contains(string(out), says) {
				t.Errorf("the tests end with %v, want a failure that says %q:\n%s", err, says, out)
			}
		})
	}
}
