package endtoend

import (
	"context"
	"errors"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// testRetryByHand: a retry is a new message to the same queue with the same id and one more retry.
// The first submission's future gets the final result (S56), and the worker is free meanwhile.
func testRetryByHand(t *testing.T, open Open) {
	r := newRoad(t, open)
	type seen struct {
		id      task.ID
		retries int
		queue   string
	}
	runs := make(chan seen, 10)
	handle(r, work, func(ctx context.Context, ms int) (int, error) {
		req, _ := task.FromContext(ctx)
		runs <- seen{req.ID, req.Retries, req.Queue}
		if req.Retries < 2 {
			return 0, task.Retry(errBroken, task.After(time.Duration(ms)*time.Millisecond))
		}
		return req.Retries, nil
	})
	r.start()
	for _, ms := range []int{0, 30} {
		if r.h.NoQueues && ms > 0 {
			continue
		}
		begin := time.Now()
		f := submit(r, work, ms)
		want(r, f, 2)
		if took := time.Since(begin); took < 2*time.Duration(ms)*time.Millisecond {
			t.Errorf("two delays of %d ms took only %s", ms, took)
		}
		for i := range 3 {
			if got := <-runs; got != (seen{f.ID(), i, queueName}) {
				t.Errorf("run %d saw %+v", i, got)
			}
		}
	}
}

func testRetryLimit(t *testing.T, open Open) {
	r := newRoad(t, open)
	runs := atomic.Int64{}
	handle(r, fail, func(_ context.Context, how string) (int, error) {
		runs.Add(1)
		switch how {
		case "no cause":
			return 0, task.Retry(nil, task.After(0))
		case "own limit":
			return 0, task.Retry(errBroken, task.After(0), task.AtMost(1))
		case "for good":
			return 0, task.Fail(task.Retry(errBroken))
		}
		return 0, task.Retry(errBroken, task.After(0))
	})
	r.start()
	for _, c := range []struct {
		how  string
		opts []task.Option
		runs int64
		err  error
		text string
	}{
		{"", nil, 4, nil, errBroken.Error()},
		{"", []task.Option{task.WithMaxRetries(0)}, 1, nil, errBroken.Error()},
		{"no cause", []task.Option{task.WithMaxRetries(2)}, 3, task.ErrMaxRetries, ""},
		{"own limit", nil, 2, nil, errBroken.Error()},
	} {
		runs.Store(0)
		remote := failure(r, submit(r, fail, c.how, c.opts...), c.err)
		if runs.Load() != c.runs || c.text != "" && remote.Message != c.text {
			t.Errorf("%q %d: ran %d times, want %d; error %q", c.how, len(c.opts), runs.Load(), c.runs, remote.Message)
		}
	}
}

func testRetryMiddleware(t *testing.T, open Open) {
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Middleware = []middleware.Middleware{middleware.Retry(middleware.RetryConfig{
			On:      func(err error) bool { return errors.Is(err, errBroken) },
			Backoff: task.Backoff{Strategy: task.BackoffConstant, Base: time.Millisecond},
		})}
	})
	runs := atomic.Int64{}
	handle(r, work, func(_ context.Context, i int) (int, error) {
		if runs.Add(1) < 3 {
			return 0, errBroken
		}
		return i, nil
	})
	handle(r, fail, func(context.Context, string) (int, error) {
		runs.Add(1)
		return 0, errors.New("something else")
	})
	r.start()
	want(r, submit(r, work, 9), 9)
	runs.Store(0)
	wantError(r, submit(r, fail, ""), nil)
	if runs.Load() != 1 {
		t.Fatalf("an error that the policy leaves out was run %d times", runs.Load())
	}
}

func testSnooze(t *testing.T, open Open) {
	r := newRoad(t, open)
	runs := atomic.Int64{}
	handle(r, work, func(ctx context.Context, _ int) (int, error) {
		req, _ := task.FromContext(ctx)
		if runs.Add(1) <= 5 {
			return 0, task.Snooze(0)
		}
		return req.Retries + req.Crashes, nil
	})
	r.start()
	// the five "not now" do not count as retries
	want(r, submit(r, work, 0, task.WithMaxRetries(1)), 0)
}

// testUnknownTask: an unknown task is parked and tried again, then fails and is dead-lettered (S11,
// fault 35). If a handler is registered in time, it gets the task.
func testUnknownTask(t *testing.T, open Open) {
	r := newRoad(t, open)
	handle(r, add, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil })
	r.start()
	want(r, submit(r, add, pair{1, 2}), 3)
	f := submit(r, task.New[int, int]("nobody"), 1)
	wantError(r, f, task.ErrUnknownTask)
	if !r.h.NoQueues {
		r.wantDead(string(f.ID()), "no handler")
	}
	want(r, submit(r, add, pair{1, 2}), 3)
}

func testUnknownThenDeployed(t *testing.T, open Open) {
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Tuning.UnknownRetries, c.Tuning.UnknownDelay = 3, 50*time.Millisecond
	})
	r.start()
	late := task.New[int, int]("late")
	f := submit(r, late, 4)
	handle(r, late, func(_ context.Context, i int) (int, error) { return i, nil })
	want(r, f, 4)
}

// wantDead waits for a dead letter of the queue and checks its reason.
func (r *road) wantDead(id, reason string) broker.Dead {
	r.t.Helper()
	var found broker.Dead
	r.eventually("the message is among the dead letters", func() (ok bool) {
		found, ok = r.dead(id)
		return ok
	})
	if r.h.Reasonless {
		return found
	}
	if !contains(found.Reason, reason) {
		r.t.Fatalf("the reason is %q, want %q in it", found.Reason, reason)
	}
	return found
}

func (r *road) isDead(id string) bool {
	r.t.Helper()
	_, ok := r.dead(id)
	return ok
}

// dead returns a dead letter of the queue and whether it exists.
func (r *road) dead(id string) (broker.Dead, bool) {
	r.t.Helper()
	dead, err := broker.ListDead(r.ctx(), r.broker, queueName, 100)
	if err != nil && !errors.Is(err, broker.ErrNoQueue) {
		r.t.Fatalf("list dead letters: %v", err)
	}
	for _, d := range dead {
		if d.Message.ID == id {
			return d, true
		}
	}
	return broker.Dead{}, false
}

// testForeignHeaders: headers that a foreign program put around its task are still present after a
// retry. The test reads them from the dead letter in which the task ends.
func testForeignHeaders(t *testing.T, open Open) {
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) { c.Tuning.UnknownRetries = 2 })
	handle(r, add, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil })
	r.start()
	want(r, submit(r, add, pair{1, 2}), 3)
	if err := r.broker.Publish(r.ctx(), queueName, &broker.Message{
		ID: "foreign", Body: []byte(`{"task":"nobody","args":1,"x_own":"kept"}`), Priority: task.DefaultPriority,
		Headers: map[string]any{"traceparent": "00-1-2-01"}, Properties: map[string]string{"correlation-id": "c"},
	}); err != nil {
		t.Fatal(err)
	}
	m := r.wantDead("foreign", "no handler").Message
	if m.Headers["traceparent"] != "00-1-2-01" || m.Properties["correlation-id"] != "c" || !contains(string(m.Body), `"x_own":"kept"`) {
		t.Fatalf("after two copies the message is %+v with body %s", m, m.Body)
	}
}

// testRetryAtMaxBody: a task whose message has the maximum size can be retried.
func testRetryAtMaxBody(t *testing.T, open Open) {
	const limit = 32 << 10
	r := newRoad(t, open, func(pc *producer.Config, cc *consumer.Config) { pc.Wire.MaxBody, cc.Wire.MaxBody = limit, limit })
	long := task.New[string, int]("road.long", task.WithMaxRetries(300), task.WithRetryDelay(0))
	handle(r, long, func(ctx context.Context, _ string) (int, error) {
		// until the count takes another byte in every format
		if req, _ := task.FromContext(ctx); req.Retries < 130 {
			return 0, task.Retry(errBroken)
		}
		return 7, nil
	})
	r.start()
	text, _ := strings.CutSuffix(strings.Repeat("0123456789abcdef", limit/16+1), "f")
	largest := sort.Search(limit, func(n int) bool {
		_, err := r.producer.Submit(r.ctx(), long.Call(text[:n], task.WithQueue("none")))
		return errors.Is(err, broker.ErrTooLarge)
	}) - 1
	if largest < limit/2 {
		t.Fatalf("an argument of %d bytes was the largest", largest)
	}
	want(r, submit(r, long, text[:largest]), 7)
}
