package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// A task's retry handler decides about each failed attempt, also about one that panicked: its verdict is what counts.
func ExampleOnError() {
	errClosed := errors.New("closed today")
	decide := middleware.OnError(func(_ context.Context, r *task.Request, err error) error {
		if errors.Is(err, errClosed) {
			return err
		}
		return task.Retry(err, task.After(time.Duration(r.Retries)*time.Millisecond), task.AtMost(2))
	})
	order := task.New[string, string]("order")

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(order.Handle(c, func(ctx context.Context, what string) (string, error) {
		r, _ := task.FromContext(ctx)
		switch {
		case what == "soup":
			return "", errClosed
		case r.Retries == 0:
			panic("out of paper")
		}
		return fmt.Sprintf("%s after %d retries", what, r.Retries), nil
	}, decide))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	for _, what := range []string{"bread", "soup"} {
		future, err := order.Submit(ctx, p, what)
		must(err)
		text, err := future.Get(ctx)
		fmt.Printf("%q %v\n", text, err)
	}
	// Output:
	// "bread after 1 retries" <nil>
	// "" closed today
}
