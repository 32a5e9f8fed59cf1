package middleware

import (
	"context"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/task"
)

// Recover returns middleware that turns a panic into a [*task.PanicError]. A consumer always wraps
// all handlers in it. Add it to a chain so that the middleware outside it gets an ordinary error.
//
// runtime.Goexit cannot be recovered. The consumer detects it and fails the task.
func Recover() Middleware {
	return func(next task.Handler) task.Handler {
		return task.HandlerFunc(func(ctx context.Context, r *task.Request) (res any, err error) {
			defer guard.Recover(&err)
			return next.Handle(ctx, r)
		})
	}
}
