package consumer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// unanswered is a store that saves and loses the answers until a moment.
type unanswered struct {
	resultstore.ResultStore
	until time.Time
}

func (s unanswered) Save(ctx context.Context, r resultstore.Record) error {
	err := s.ResultStore.Save(ctx, r)
	if err == nil && time.Now().Before(s.until) {
		return resultstore.ErrUnavailable
	}
	return err
}

// TestStoreAnswersLostAtMostOnce: the result is stored, and the answers are lost for longer than
// StoreRetry. What follows is what follows a success.
func TestStoreAnswersLostAtMostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Results = unanswered{c.Results, time.Now().Add(5 * time.Minute)}
		})
		b.run()
		c := echo.Call(3, task.WithID("first"), task.WithIdempotent(false))
		c.Then = []task.Link{{ID: "second", Name: "echo"}}
		c.Else = []task.Link{{ID: "error-task", Name: "echo"}}
		if _, err := b.p.Submit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if got, err := task.FutureOf[int](b.p.Pending("first")).Get(ctx); err != nil || got != 3 {
			t.Errorf("first: %v %v", got, err)
		}
		if got, err := task.FutureOf[int](b.p.Pending("second")).Get(ctx); err != nil || got != 3 {
			t.Errorf("second: %v %v", got, err)
		}
		time.Sleep(10 * time.Minute)
		if rec, err := b.store.Load(t.Context(), "error-task"); !errors.Is(err, resultstore.ErrNotFound) {
			t.Errorf("the error task of a task that succeeded: %v %v", rec.State, err)
		}
		b.end()
	})
}

// TestOneLetterAtMostOnce: no record is wanted, and what follows the task is blocked for an hour.
// The task is one dead letter, and is followed once.
func TestOneLetterAtMostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wrapped{}
		until := time.Now().Add(time.Hour)
		b := newTable(t, func(c *consumer.Config) {
			w.Broker = c.Broker
			w.publish = func(_ context.Context, _ broker.Outgoing, do func() error) error {
				if time.Now().Before(until) {
					return broker.ErrBlocked
				}
				return do()
			}
			c.Broker = w
		})
		var failures atomic.Int64
		onError := task.New[task.Failure, int]("on-error", task.WithIgnoreResult(true))
		must0(t, onError.Handle(b.c, func(context.Context, task.Failure) (int, error) { failures.Add(1); return 0, nil }))
		b.run()
		c := echo.Call(-1, task.WithID("first"), task.WithIdempotent(false), task.WithIgnoreResult(true))
		c.Else = []task.Link{{ID: "error-task", Name: "on-error"}}
		if _, err := b.p.Submit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if s := b.stats(t); s.Dead != 1 || b.metrics.Failed.Count() != 1 || failures.Load() != 1 {
			t.Errorf("%d letters, failed %d times, %d error tasks", s.Dead, b.metrics.Failed.Count(), failures.Load())
		}
		b.end()
	})
}

// TestSubmitterAwayAtMostOnce: the consumer keeps no results, and the store in which the submitter
// waits is away for long when the task has succeeded. It is followed as a success, and by nothing else.
func TestSubmitterAwayAtMostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Defaults = task.Metadata{IgnoreResult: task.Set(true)}
			c.Results = flakyStore{c.Results, time.Now().Add(5 * time.Minute), resultstore.ErrUnavailable}
		})
		var failures, seconds atomic.Int64
		onError := task.New[task.Failure, int]("on-error")
		must0(t, onError.Handle(b.c, func(context.Context, task.Failure) (int, error) { failures.Add(1); return 0, nil }))
		second := task.New[int, int]("second", task.WithIdempotent(false))
		must0(t, second.Handle(b.c, func(context.Context, int) (int, error) { seconds.Add(1); return 0, nil }))
		b.run()
		c := echo.Call(3, task.WithID("first"), task.WithIdempotent(false))
		c.Then = []task.Link{{ID: "second", Name: "second", Meta: second.Metadata()}}
		c.Else = []task.Link{{ID: "error-task", Name: "on-error"}}
		if _, err := b.p.Submit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if s := b.stats(t); s.Dead != 0 || failures.Load() != 0 || seconds.Load() != 1 {
			t.Errorf("%d letters, %d error tasks, %d next steps", s.Dead, failures.Load(), seconds.Load())
		}
		b.end()
	})
}
