package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/examples/demo"
	"github.com/swarmiji/swarmiji/task"
)

// register registers the handlers.
func register(r task.Registrar) error {
	return errors.Join(demo.Add.Handle(r, add), demo.Flaky.Handle(r, flaky), demo.Sleep.Handle(r, sleep))
}

func add(_ context.Context, p demo.Pair) (int, error) { return p.A + p.B, nil }

// flaky fails as often as it is asked to; retries end that, the task's own limit at the latest.
func flaky(ctx context.Context, a demo.Attempts) (string, error) {
	run := 1
	if r, ok := task.FromContext(ctx); ok {
		run += r.Retries
	}
	if run <= a.Failures {
		return "", task.Retry(fmt.Errorf("run %d failed, as it was asked to", run))
	}
	return fmt.Sprintf("succeeded in run %d", run), nil
}

// sleep returns how many milliseconds it slept. It ends with its context, as every handler that
// waits should.
func sleep(ctx context.Context, n demo.Nap) (int, error) {
	timer := time.NewTimer(time.Duration(n.Milliseconds) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return n.Milliseconds, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
