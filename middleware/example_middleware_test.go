package middleware_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

type userKey struct{}

// Middleware wraps handlers. It sees the request and the outcome, may change the context, and may
// return without calling the handler. This one puts a user from the task's headers into the
// context, and refuses tasks without a user.
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

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{Middleware: []middleware.Middleware{authenticate}}, func(r task.Registrar) error {
		return publish.Handle(r, func(ctx context.Context, page string) (string, error) {
			return fmt.Sprint(page, " published by ", ctx.Value(userKey{})), nil
		})
	})

	ctx := context.Background()
	for _, opts := range [][]task.Option{{task.WithHeader("user", "ada")}, nil} {
		future, err := publish.Submit(ctx, s, "index.html", opts...)
		if err != nil {
			panic(err)
		}
		text, err := future.Get(ctx)
		fmt.Printf("%q %v\n", text, err)
	}
	// Output:
	// "index.html published by ada" <nil>
	// "" publish needs a user
}
