package middleware

import (
	"context"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/task"
)

// TimeLimit returns middleware that enforces the soft and the hard time limit of a task's metadata.
// A consumer always has it as its innermost middleware. A panic becomes a [*task.PanicError]. A
// task without limits costs nothing.
//
// At the soft limit the handler's context ends with cause [task.ErrSoftTimeLimit]; the handler
// decides what to return. At the hard limit the context ends with cause [task.ErrTimeLimit], and
// the run ends with this error when the handler returns.
//
// A handler that has not returned a second later keeps running, and the run ends: stuck is called
// with +1, and with -1 when the handler returns. If stuck is nil, the run ends at the limit.
func TimeLimit(stuck func(delta int)) Middleware {
	var count func(*task.Request, int)
	if stuck != nil {
		count = func(_ *task.Request, delta int) { stuck(delta) }
	}
	return func(next task.Handler) task.Handler {
		return task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
			return guard.Run(ctx, next, r, count)
		})
	}
}
