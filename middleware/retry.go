package middleware

import (
	"context"
	"errors"

	"github.com/swarmiji/swarmiji/task"
)

// RetryConfig tunes [Retry]. The zero value retries every error at the task's own RetryDelay.
type RetryConfig struct {
	// On tells which errors are retried. nil: all. It is never asked about verdicts ([task.Fail], [task.Retry],
	// [task.Snooze]), which stand as they are, nor about arguments that do not fit ([task.ErrBadArgs]).
	On func(error) bool
	// Backoff gives the delay. The zero value: the task's RetryDelay.
	Backoff task.Backoff
}

// Retry turns a handler's ordinary errors into retries, up to the task's MaxRetries. Given to one task
// ([task.Task.Handle]) it sees time limits and panics as well ([Outside]). It comes before a policy in the task's metadata
// ([task.WithRetry]), which needs no middleware and holds in every process.
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

func isVerdict(err error) bool { return task.VerdictOf(err) != nil }
