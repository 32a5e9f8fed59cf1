package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// The definitions of the tasks. Quickstart has its own copy of them, so that it is one file; what counts is that names
// and fields are the same. Other languages may write them as JSON: {"task": "demo.add", "args": {"A": 1, "B": 2}}.

type pair struct{ A, B int }

type attempts struct {
	Failures int // how many runs fail before one succeeds
}

type nap struct {
	Milliseconds int
}

var (
	addTask   = task.New[pair, int]("demo.add", task.WithTimeLimit(10*time.Second))
	flakyTask = task.New[attempts, string]("demo.flaky", task.WithMaxRetries(3), task.WithRetryDelay(200*time.Millisecond))
	sleepTask = task.New[nap, int]("demo.sleep")
)

func register(r task.Registrar) error {
	return errors.Join(addTask.Handle(r, add), flakyTask.Handle(r, flaky), sleepTask.Handle(r, sleep))
}

func add(_ context.Context, p pair) (int, error) { return p.A + p.B, nil }

// flaky fails as often as it is asked to; retries end that, the task's own limit at the latest.
func flaky(ctx context.Context, a attempts) (string, error) {
	run := 1
	if r, ok := task.FromContext(ctx); ok {
		run += r.Retries
	}
	if run <= a.Failures {
		return "", task.Retry(fmt.Errorf("run %d failed, as it was asked to", run))
	}
	return fmt.Sprintf("succeeded in run %d", run), nil
}

// sleep returns how many milliseconds it slept. It ends with its context, as every handler that waits should.
func sleep(ctx context.Context, n nap) (int, error) {
	timer := time.NewTimer(time.Duration(n.Milliseconds) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return n.Milliseconds, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
