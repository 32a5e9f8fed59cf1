package endtoend

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

const busy = "road.Busy" // the name of an error

// flaky fails as how says: once with a panic, twice with an error, or always.
func flaky(ctx context.Context, how string) (int, error) {
	req, _ := task.FromContext(ctx)
	switch how {
	case "panic":
		if req.Retries == 0 {
			panic("once")
		}
		return req.Retries, nil
	case "twice":
		if req.Retries < 2 {
			return 0, fmt.Errorf("wrapped: %w", task.Named(busy, errBroken))
		}
		return req.Retries, nil
	case "for good":
		return 0, task.Fail(task.Named(busy, errBroken))
	}
	return 0, task.Named(busy, errBroken)
}

// testRetryPolicy: the retry policy in a message holds at a consumer without middleware whose task
// definition has no policy (S17, S61).
func testRetryPolicy(t *testing.T, open Open) {
	r := newRoad(t, open)
	runs := atomic.Int64{}
	handle(r, fail, func(ctx context.Context, how string) (int, error) {
		runs.Add(1)
		return flaky(ctx, how)
	})
	r.start()
	only := func(names ...string) task.Option { return task.WithRetry(task.RetryPolicy{On: names}) }
	sent := fail.With(only(busy), task.WithRetryDelay(0))
	for _, c := range []struct {
		how    string
		opts   []task.Option
		runs   int64
		result int
	}{
		{"twice", nil, 3, 2},
		{"panic", []task.Option{only("swarmiji.Panic")}, 2, 1},
		{"panic", nil, 1, -1},
		{"always", nil, 4, -1},
		{"always", []task.Option{task.WithMaxRetries(1)}, 2, -1},
		{"always", []task.Option{task.WithoutRetry()}, 1, -1},
		{"always", []task.Option{only("swarmiji.Panic", "net.OpError")}, 1, -1},
		{"for good", nil, 1, -1},
	} {
		runs.Store(0)
		f := submit(r, sent, c.how, c.opts...)
		if c.result >= 0 {
			want(r, f, c.result)
		} else if remote := failure(r, f, nil); c.how != "panic" && (remote.Type != busy || remote.Message != errBroken.Error()) {
			t.Errorf("%s failed with %+v", c.how, remote)
		}
		if n := runs.Load(); n != c.runs {
			t.Errorf("%s with %d options ran %d times, want %d", c.how, len(c.opts), n, c.runs)
		}
	}
	if r.h.NoQueues {
		return
	}
	begin := time.Now()
	grow := task.RetryPolicy{Backoff: task.Backoff{Strategy: task.BackoffExponential, Base: 40 * time.Millisecond}}
	want(r, submit(r, sent, "twice", task.WithRetry(grow)), 2)
	if took := time.Since(begin); took < 120*time.Millisecond {
		t.Errorf("delays of 40 and 80 ms took only %s", took)
	}
}

// testRetryHandler: a task's own retry handler runs after a failed attempt, including a panic and
// an exceeded time limit (S58).
func testRetryHandler(t *testing.T, open Open) {
	r := newRoad(t, open)
	err := fail.Handle(r.consumer, func(ctx context.Context, how string) (int, error) {
		if req, _ := task.FromContext(ctx); how == "slow" && req.Retries == 0 {
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return flaky(ctx, how)
	}, middleware.OnError(func(_ context.Context, r *task.Request, err error) error {
		if r.Retries == 2 {
			return fmt.Errorf("given up: %w", err)
		}
		return task.Retry(err, task.After(0))
	}))
	if err != nil {
		t.Fatal(err)
	}
	r.start()
	want(r, submit(r, fail, "panic"), 1)
	want(r, submit(r, fail, "twice"), 2)
	remote := failure(r, submit(r, fail, "slow", task.WithTimeLimit(20*time.Millisecond)), nil)
	if remote.Message != "given up: "+errBroken.Error() {
		t.Errorf("after the time limit and two more runs: %+v", remote)
	}
	remote = failure(r, submit(r, fail, "for good"), nil)
	if remote.Message != errBroken.Error() {
		t.Errorf("the retry handler was asked about a verdict: %+v", remote)
	}
}

// testRetryQueue: a retry goes to the queue from which the task came, even if the router has
// changed (S56).
func testRetryQueue(t *testing.T, open Open) {
	const other = queueName + ".other"
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Queues[other] = consumer.QueueConfig{Workers: 1}
	})
	queues := make(chan string, 10)
	handle(r, work, func(ctx context.Context, _ int) (int, error) {
		req, _ := task.FromContext(ctx)
		queues <- req.Queue
		if req.Retries < 2 {
			return 0, task.Retry(errBroken, task.After(0))
		}
		return req.Retries, nil
	})
	r.start()
	r.submitQueue(other)
	for i := range 3 {
		if q := <-queues; q != other {
			t.Errorf("run %d came from %q, want %q", i, q, other)
		}
	}
}

// submitQueue submits a task to a queue that only the consumer declares, as soon as it exists, and
// waits for the result.
func (r *road) submitQueue(queue string) {
	r.t.Helper()
	var p task.Pending
	r.eventually("the queue is there", func() (ok bool) {
		var err error
		p, err = r.producer.Submit(r.ctx(), work.Call(0, task.WithQueue(queue)))
		return err == nil
	})
	want(r, task.FutureOf[int](p), 2)
}

// testRetryBudget: each attempt has one task-failed event, and the last one says that no further
// attempt follows (S32, S59). Each event has the number of the attempt and the task's limit of
// retries.
func testRetryBudget(t *testing.T, open Open) {
	var sub events.Subscription
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		h := open(t)
		bus := h.Events(t)
		listen := h.Events(t)
		c.Events = bus
		var err error
		if sub, err = listen.Subscribe(context.Background(), events.Filter{Types: []string{events.TaskFailed}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = sub.Close(context.Background())
			_ = bus.Close(context.Background())
			_ = listen.Close(context.Background())
		})
	})
	handle(r, fail, flaky)
	r.start()
	policy := task.WithRetry(task.RetryPolicy{})
	f := submit(r, fail, "always", policy, task.WithRetryDelay(0), task.WithMaxRetries(2))
	wantError(r, f, nil)
	// attempt to retry; an attempt may overtake the event of the previous one
	seen := make(map[float64]bool)
	for range 3 {
		e, err := sub.Receive(r.ctx())
		if err != nil {
			t.Fatal(err)
		}
		attempt, _ := e.Fields["attempt"].(float64)
		if e.TaskID != f.ID() || e.Fields["max_retries"] != 2.0 {
			t.Errorf("task-failed is %+v", e)
		}
		seen[attempt] = e.Retry
	}
	if len(seen) != 3 || !seen[1] || !seen[2] || seen[3] {
		t.Errorf("whether another attempt follows, by attempt: %v", seen)
	}
}

// testRetryOutlivesConsumer: the wait before a retry survives the consumer that requested it (S60).
func testRetryOutlivesConsumer(t *testing.T, open Open) {
	r := newRoad(t, open)
	asked := make(chan struct{}, 1)
	handle(r, work, func(context.Context, int) (int, error) {
		asked <- struct{}{}
		return 0, task.Retry(errBroken, task.After(500*time.Millisecond))
	})
	run := r.start()
	begin := time.Now()
	f := submit(r, work, 0)
	<-asked
	if err := run.stop(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.second(func(c *consumer.Consumer) {
		if err := work.Handle(c, func(ctx context.Context, _ int) (int, error) {
			req, _ := task.FromContext(ctx)
			return req.Retries, nil
		}); err != nil {
			t.Fatal(err)
		}
	})
	want(r, f, 1)
	if took := time.Since(begin); took < 500*time.Millisecond {
		t.Errorf("a delay of 500 ms took %s", took)
	}
}
