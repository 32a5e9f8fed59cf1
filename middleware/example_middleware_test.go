package middleware_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

type userKey struct{}

// Middleware wraps handlers: it sees the request before and the outcome after, may change the context, and may answer
// itself. This one puts a user from the task's headers into the context, and refuses tasks that have none.
func ExampleMiddleware() {
	authenticate := func(next task.Handler) task.Handler {
		return task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
			user, ok := r.Headers["user"]
			if !ok {
				return nil, task.Fail(fmt.Errorf("%s needs a user", r.Name))
			}
			return next.Handle(context.WithValue(ctx, userKey{}, user), r)
		})
	}
	publish := task.New[string, string]("publish")

	p, c, run := inMemory(producer.Config{}, consumer.Config{Middleware: []middleware.Middleware{authenticate}})
	must(publish.Handle(c, func(ctx context.Context, page string) (string, error) {
		return fmt.Sprint(page, " published by ", ctx.Value(userKey{})), nil
	}))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	for _, opts := range [][]task.Option{{task.WithHeader("user", "ada")}, nil} {
		future, err := publish.Submit(ctx, p, "index.html", opts...)
		must(err)
		text, err := future.Get(ctx)
		fmt.Printf("%q %v\n", text, err)
	}
	// Output:
	// "index.html published by ada" <nil>
	// "" publish needs a user
}
