package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A task's retry handler decides about each failed attempt, including panics.
func ExampleOnError() {
	errClosed := errors.New("closed today")
	decide := middleware.OnError(func(_ context.Context, r *task.Request, err error) error {
		if errors.Is(err, errClosed) {
			return err
		}
		return task.Retry(err, task.After(time.Duration(r.Retries)*time.Millisecond), task.AtMost(2))
	})
	order := task.New[string, string]("order")

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return order.Handle(r, func(ctx context.Context, what string) (string, error) {
			r, _ := task.FromContext(ctx)
			switch {
			case what == "soup":
				return "", errClosed
			case r.Retries == 0:
				panic("out of paper")
			}
			return fmt.Sprintf("%s after %d retries", what, r.Retries), nil
		}, decide)
	})

	ctx := context.Background()
	for _, what := range []string{"bread", "soup"} {
		future, err := order.Submit(ctx, s, what)
		if err != nil {
			panic(err)
		}
		text, err := future.Get(ctx)
		fmt.Printf("%q %v\n", text, err)
	}
	// Output:
	// "bread after 1 retries" <nil>
	// "" closed today
}
