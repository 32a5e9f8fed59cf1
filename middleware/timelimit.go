package middleware

import (
	"context"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/task"
)

// TimeLimit enforces the soft and the hard time limit of a task's metadata; a consumer has it built in, innermost. A panic in
// what it wraps is a [*task.PanicError].
//
// At the soft limit the handler's context ends with cause [task.ErrSoftTimeLimit], and the handler decides what it returns.
// At the hard limit the context ends with cause [task.ErrTimeLimit] and the run is over with that error, whether or not
// the handler has returned. A handler that goes on is abandoned: stuck (nil for nobody) is called with +1 then, and with -1
// when it returns at last. A task without limits costs nothing.
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
