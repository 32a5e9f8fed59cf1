package middleware

import (
	"context"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/task"
)

// Recover turns a panic in what it wraps into a [*task.PanicError]. A consumer puts it around everything by itself; inside one's
// own chain it lets the middleware outside it see an ordinary error. (runtime.Goexit cannot be recovered; the consumer
// notices it too and fails the task.)
func Recover() Middleware {
	return func(next task.Handler) task.Handler {
		return task.HandlerFunc(func(ctx context.Context, r *task.Request) (res any, err error) {
			defer guard.Recover(&err)
			return next.Handle(ctx, r)
		})
	}
}
