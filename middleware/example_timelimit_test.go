package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// Time limits are a task's metadata; the consumer has the middleware that keeps them built in. At the soft limit the
// handler's context ends, and the handler may still return what it has. At the hard limit the task fails, and the worker
// goes on with the next one, even if the handler looks at nothing.
func ExampleTimeLimit() {
	search := task.New[string, string]("search", task.WithSoftTimeLimit(20*time.Millisecond))
	stubborn := task.New[string, string]("stubborn", task.WithTimeLimit(20*time.Millisecond))
	release := make(chan bool)

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(search.Handle(c, func(ctx context.Context, _ string) (string, error) {
		<-ctx.Done()
		return fmt.Sprint("the best so far; soft limit: ", errors.Is(context.Cause(ctx), task.ErrSoftTimeLimit)), nil
	}))
	must(stubborn.Handle(c, func(context.Context, string) (string, error) {
		<-release
		return "too late", nil
	}))
	defer run()()
	defer close(release)

	ctx, cancel := soon()
	defer cancel()
	soft, err := search.Submit(ctx, p, "")
	must(err)
	fmt.Println(soft.Get(ctx))
	hard, err := stubborn.Submit(ctx, p, "")
	must(err)
	_, err = hard.Get(ctx)
	fmt.Println("hard limit:", errors.Is(err, task.ErrTimeLimit))
	// Output:
	// the best so far; soft limit: true <nil>
	// hard limit: true
}
