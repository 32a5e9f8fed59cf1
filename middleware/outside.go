package middleware

import (
	"context"

	"github.com/swarmiji/swarmiji/task"
)

// Outside returns middleware that also wraps a task's time limits and the recovery of its panics,
// so that it sees their errors. Only the consumer's own middleware is outside it.
//
// This requires that the middleware is given to one task ([task.Task.Handle]) and that only other
// middleware from Outside precedes it. Otherwise the result is the same as m.
func Outside(m Middleware) Middleware {
	return func(next task.Handler) task.Handler { return &outside{Handler: m(next), wrap: m, inner: next} }
}

// outside is a handler with middleware of [Outside], which [Split] can remove again.
type outside struct {
	task.Handler
	wrap  Middleware
	inner task.Handler
}

// Split removes the middleware that [Outside] put around h. It returns this middleware, the
// outermost first, and the remaining handler. Consumers use it.
func Split(h task.Handler) (outer []Middleware, inner task.Handler) {
	for {
		o, ok := h.(*outside)
		if !ok {
			return outer, h
		}
		outer, h = append(outer, o.wrap), o.inner
	}
}

// RetryHandler decides about a failed attempt: it returns task.Retry with a delay, the same or
// another error, or nil, which makes the attempt a success without a result.
//
// It is not called for errors with a verdict, when the consumer stops, or when the broker takes the
// task back. It is code of this process only; for rules of all processes use a [task.RetryPolicy].
type RetryHandler func(ctx context.Context, r *task.Request, err error) error

// OnError returns middleware that calls decide for each failed attempt, see [RetryHandler], and
// returns the error of decide instead. Given to [task.Task.Handle] it also sees time limits and
// panics ([Outside]).
func OnError(decide RetryHandler) Middleware {
	return Outside(func(next task.Handler) task.Handler {
		return task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
			res, err := next.Handle(ctx, r)
			if err == nil || isVerdict(err) || ctx.Err() != nil {
				return res, err
			}
			return nil, decide(ctx, r, err)
		})
	})
}
