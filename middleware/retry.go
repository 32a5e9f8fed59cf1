package middleware

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/swarmiji/swarmiji/internal/backoff"
	"github.com/swarmiji/swarmiji/task"
)

// Backoff gives the delay before retry number n, counted from 0. It must be safe for concurrent use.
type Backoff func(n int) time.Duration

// Constant waits d before every retry.
func Constant(d time.Duration) Backoff { return func(int) time.Duration { return d } }

// Linear waits step, then 2 step, 3 step and so on, at most limit (0: no limit).
func Linear(step, limit time.Duration) Backoff {
	if limit <= 0 {
		limit = math.MaxInt64
	}
	return func(n int) time.Duration { return backoff.Times(max(step, 0), limit, max(n, 0)+1) }
}

// Defaults of [Exponential].
const (
	DefaultBackoffFactor = task.DefaultBackoffBase
	DefaultBackoffMax    = task.DefaultBackoffMax
)

// Exponential waits factor, 2 factor, 4 factor and so on, at most limit. factor 0 means 1 s, limit 0 means 10 min.
func Exponential(factor, limit time.Duration) Backoff {
	if factor <= 0 {
		factor = DefaultBackoffFactor
	}
	if limit <= 0 {
		limit = DefaultBackoffMax
	}
	return func(n int) time.Duration { return backoff.Double(factor, limit, n) }
}

// Jitter waits a random time between 0 and what b says ("full jitter"), so that many failures at once do not come back at
// once.
func Jitter(b Backoff) Backoff {
	return func(n int) time.Duration {
		d := b(n)
		if d <= 0 {
			return 0
		}
		return rand.N(d + 1)
	}
}

// RetryConfig tunes [Retry]. The zero value retries every error at the task's own RetryDelay.
type RetryConfig struct {
	// On tells which errors are retried. nil: all. It is never asked about verdicts ([task.Fail], [task.Retry],
	// [task.Snooze]), which stand as they are, nor about arguments that do not fit ([task.ErrBadArgs]).
	On func(error) bool
	// Backoff gives the delay. nil: the task's RetryDelay.
	Backoff Backoff
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
			if c.Backoff == nil {
				return nil, task.Retry(err)
			}
			return nil, task.Retry(err, task.After(c.Backoff(r.Retries)))
		})
	})
}

func isVerdict(err error) bool { return task.VerdictOf(err) != nil }
