package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// The task itself says which errors are retried. The consumer needs to know nothing of it; an error without a type of its own
// gets a name where it is returned.
func Example_retryPolicy() {
	charge := task.New[int, string]("charge", task.WithRetry(task.RetryPolicy{
		On:      []string{"billing.Busy"},
		Backoff: task.Backoff{Strategy: task.BackoffExponential, Base: time.Millisecond, Jitter: true},
	}))

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(c.Register("charge", task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
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
	}), task.Metadata{}))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	for _, amount := range []int{12, -1} {
		future, err := charge.Submit(ctx, p, amount)
		must(err)
		text, err := future.Get(ctx)
		fmt.Printf("%q %v\n", text, err)
	}
	// Output:
	// "charged 12 after 2 retries" <nil>
	// "" no such amount
}
