package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// The definition of a task says which errors are retried. An error without a type of its own gets a
// name where it is returned.
func Example_retryPolicy() {
	charge := task.New[int, string]("charge", task.WithRetry(task.RetryPolicy{
		On:      []string{"billing.Busy"},
		Backoff: task.Backoff{Strategy: task.BackoffExponential, Base: time.Millisecond, Jitter: true},
	}))

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return r.Register("charge", task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
			var amount int
			switch err := r.Bind(&amount); {
			case err != nil:
				return nil, err
			case amount < 0:
				return nil, errors.New("no such amount")
			case r.Retries < 2:
				return nil, task.Named("billing.Busy", errors.New("the bank is busy"))
			}
			return fmt.Sprintf("charged %d after %d retries", amount, r.Retries), nil
		}), task.Metadata{})
	})

	ctx := context.Background()
	for _, amount := range []int{12, -1} {
		future, err := charge.Submit(ctx, s, amount)
		if err != nil {
			panic(err)
		}
		text, err := future.Get(ctx)
		fmt.Printf("%q %v\n", text, err)
	}
	// Output:
	// "charged 12 after 2 retries" <nil>
	// "" no such amount
}
