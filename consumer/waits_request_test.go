package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

// TestAwaitRequests shows that an answer which was accepted during the request continues the task,
// however the attempt ends, but for a failure. A request that failed is sent again.
func TestAwaitRequests(t *testing.T) {
	broken := errors.New("broken")
	for what, c := range map[string]struct {
		answered bool
		request  error // of the first request
		end      func(err error) error
		opts     []task.Option
		requests int
		want     string
	}{
		"return":             {true, nil, func(err error) error { return err }, nil, 1, "an answer"},
		"retry":              {true, nil, func(error) error { return task.Retry(nil, task.After(48*time.Hour)) }, nil, 1, "an answer"},
		"snooze":             {true, nil, func(error) error { return task.Snooze(48 * time.Hour) }, nil, 1, "an answer"},
		"failed request":     {false, task.Retry(nil), func(err error) error { return err }, nil, 2, "an answer"},
		"answer, no request": {true, task.Retry(nil), func(err error) error { return err }, nil, 1, "an answer"},
		"failure":            {true, nil, func(error) error { return broken }, nil, 1, ""},
		"at most once":       {true, nil, func(err error) error { return err }, []task.Option{task.WithIdempotent(false)}, 1, "an answer"},
	} {
		t.Run(what, func(t *testing.T) {
			requests := 0
			var service *jobs.Service
			waitTable(t, nil, func(ctx context.Context, attempt int) (string, error) {
				v, err := task.Await[string](ctx, "a", "k", task.Requesting(func(context.Context) error {
					requests++
					if c.answered || requests > 1 {
						answer(t, service, "k", "an answer", jobs.Accepted)
					}
					if requests > 1 {
						return nil
					}
					return c.request
				}))
				if attempt == 1 {
					return "", c.end(err)
				}
				return v + ", used", err
			}, func(t *testing.T, b *table, s *countingStore, answers *jobs.Service, submit func(...task.Option) *task.Future[string]) {
				service = answers
				f := submit(c.opts...)
				time.Sleep(time.Minute)
				rec := b.rec(t, f.ID())
				if c.want == "" {
					if rec.State != task.StateFailed || rec.Error.Error() != broken.Error() {
						t.Errorf("the task is %s, %v", rec.State, rec.Error)
					}
				} else if v, err := get(t, f); v != c.want+", used" || err != nil {
					t.Errorf("the task is %s with %q, %v", rec.State, v, err)
				}
				if requests != c.requests {
					t.Errorf("%d requests, want %d", requests, c.requests)
				}
				answer(t, answers, "k", "late", map[bool]jobs.ReceiptKind{true: jobs.Duplicate, false: jobs.Early}[c.want != ""])
			})
		})
	}
}

// TestAwaitAnswerIsNoResult shows that an accepted answer is dropped if the process dies during the
// request, and the next attempt fails before it waits. The answer is not the result of the task.
func TestAwaitAnswerIsNoResult(t *testing.T) {
	var own *membroker.Broker
	var lose func()
	waitTable(t, func(c *consumer.Config) { own = c.Broker.(*membroker.Broker) }, func(ctx context.Context, attempt int) (string, error) {
		if attempt > 1 {
			return "", task.Fail(errors.New("before the wait"))
		}
		return task.Await[string](ctx, "a", "k", task.Requesting(func(ctx context.Context) error {
			lose()
			time.Sleep(time.Minute)
			return nil
		}))
	}, func(t *testing.T, b *table, _ *countingStore, answers *jobs.Service, submit func(...task.Option) *task.Future[string]) {
		lose = func() {
			answer(t, answers, "k", "approved", jobs.Accepted)
			b.server.Disconnect(own)
		}
		f := submit()
		time.Sleep(time.Hour)
		if rec := b.rec(t, f.ID()); rec.State != task.StateFailed || rec.Error.Error() != "before the wait" {
			t.Errorf("the task is %s, %v", rec.State, rec.Error)
		}
		answer(t, answers, "k", "late", jobs.Early)
	})
}

// TestAwaitTakesNoLaterAnswer shows that a repeated answer to the key of Await does not end a task
// that fails after it.
func TestAwaitTakesNoLaterAnswer(t *testing.T) {
	var service *jobs.Service
	waitTable(t, nil, func(ctx context.Context, attempt int) (string, error) {
		v, err := task.Await[string](ctx, "a", "k", task.Requesting(func(context.Context) error { return nil }))
		if err != nil {
			return "", err
		}
		answer(t, service, "k", "again", jobs.Duplicate)
		if attempt == 2 {
			return "", task.Retry(nil)
		}
		return "", fmt.Errorf("after %s", v)
	}, func(t *testing.T, b *table, _ *countingStore, answers *jobs.Service, submit func(...task.Option) *task.Future[string]) {
		service = answers
		f := submit()
		synctest.Wait()
		answer(t, answers, "k", "one", jobs.Accepted)
		if v, err := get(t, f); v != "" || err == nil || err.Error() != "after one" {
			t.Errorf("the task ended with %q, %v", v, err)
		}
	})
}
