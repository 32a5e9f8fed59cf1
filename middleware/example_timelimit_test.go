package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// Time limits are metadata of a task, and the consumer enforces them. At the soft limit the
// handler's context ends; the handler may still return a result. At the hard limit the task fails
// and the worker continues with the next task, even if the handler does not return.
func ExampleTimeLimit() {
	search := task.New[string, string]("search", task.WithSoftTimeLimit(20*time.Millisecond))
	stubborn := task.New[string, string]("stubborn", task.WithTimeLimit(20*time.Millisecond))
	release := make(chan bool)

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return errors.Join(
			search.Handle(r, func(ctx context.Context, _ string) (string, error) {
				<-ctx.Done()
				return fmt.Sprint("the best so far; soft limit: ", errors.Is(context.Cause(ctx), task.ErrSoftTimeLimit)), nil
			}),
			stubborn.Handle(r, func(context.Context, string) (string, error) {
				<-release
				return "too late", nil
			}),
		)
	})
	defer close(release)

	ctx := context.Background()
	soft, err := search.Submit(ctx, s, "")
	if err != nil {
		panic(err)
	}
	fmt.Println(soft.Get(ctx))
	hard, err := stubborn.Submit(ctx, s, "")
	if err != nil {
		panic(err)
	}
	_, err = hard.Get(ctx)
	fmt.Println("hard limit:", errors.Is(err, task.ErrTimeLimit))
	// Output:
	// the best so far; soft limit: true <nil>
	// hard limit: true
}
