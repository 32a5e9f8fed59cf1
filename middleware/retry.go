package middleware

import (
	"context"
	"errors"

	"github.com/swarmiji/swarmiji/task"
)

// RetryConfig configures [Retry]. The zero value retries every error with the task's RetryDelay.
type RetryConfig struct {
	// On reports whether an error is retried. It is not called for errors with a verdict ([task.Fail],
	// [task.Retry], [task.Snooze]) or for [task.ErrBadArgs], which are not retried. Default: all
	// errors are retried.
	On func(error) bool
	// Backoff sets the delay. Default: the task's RetryDelay.
	Backoff task.Backoff
}

// Retry returns middleware that turns ordinary errors of a handler into retries, up to the task's
// MaxRetries. Given to [task.Task.Handle] it also sees time limits and panics ([Outside]). It takes
// precedence over a policy in the task's metadata ([task.WithRetry]), which works in every process
// without middleware.
func Retry(c RetryConfig) Middleware {
	return Outside(func(next task.Handler) task.Handler {
		return task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
			res, err := next.Handle(ctx, r)
			if err == nil || isVerdict(err) || errors.Is(err, task.ErrBadArgs) || c.On != nil && !c.On(err) {
				return res, err
			}
			if d, ok := c.Backoff.Delay(r.ID, r.Retries); ok {
				return nil, task.Retry(err, task.After(d))
			}
			return nil, task.Retry(err)
		})
	})
}

// isVerdict reports whether err has a verdict, such as [task.Retry], [task.Snooze] or [task.Fail].
func isVerdict(err error) bool { return task.VerdictOf(err) != nil }
