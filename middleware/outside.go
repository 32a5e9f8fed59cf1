package middleware

import (
	"context"

	"github.com/swarmiji/swarmiji/task"
)

// Outside makes m, when it is given to one task ([task.Task.Handle]), wrap the task's time limits and the recovery of its
// panics too, so that it sees the errors that come of them. Around it lies the consumer's own middleware alone. It does so
// where nothing but others of its kind are around it; elsewhere m is what it was.
func Outside(m Middleware) Middleware {
	return func(next task.Handler) task.Handler { return &outside{Handler: m(next), wrap: m, inner: next} }
}

type outside struct {
	task.Handler
	wrap  Middleware
	inner task.Handler
}

// Split takes what [Outside] has put around h from it: the outermost first, and what is left. Consumers use it.
func Split(h task.Handler) (outer []Middleware, inner task.Handler) {
	for {
		o, ok := h.(*outside)
		if !ok {
			return outer, h
		}
		outer, h = append(outer, o.wrap), o.inner
	}
}

// RetryHandler is asked about every failed attempt of a task, and what it returns is the verdict: task.Retry with a delay, the
// error itself, another one, or nil for "it has succeeded after all", with no result. It is not asked about verdicts, and not
// when the consumer stops or the broker has taken the task back. It is this process's own code; what is to hold in every
// process is a [task.RetryPolicy].
type RetryHandler func(ctx context.Context, r *task.Request, err error) error

// OnError gives a task its retry handler. Given to [task.Task.Handle] it sees time limits and panics as well ([Outside]).
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
