package middleware

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Backoff gives the delay before retry number n, counted from 0. It must be safe for concurrent use.
type Backoff func(n int) time.Duration

// Constant waits d before every retry.
func Constant(d time.Duration) Backoff { return func(int) time.Duration { return d } }

// Linear waits step, then 2 step, 3 step and so on, at most limit (0: no limit).
func Linear(step, limit time.Duration) Backoff {
	return func(n int) time.Duration {
		d := time.Duration(n+1) * step
		if limit > 0 && (d > limit || d < 0) {
			d = limit
		}
		return d
	}
}

// Defaults of [Exponential].
const (
	DefaultBackoffFactor = time.Second
	DefaultBackoffMax    = 10 * time.Minute
)

// Exponential waits factor, 2 factor, 4 factor and so on, at most limit. factor 0 means 1 s, limit 0 means 10 min.
func Exponential(factor, limit time.Duration) Backoff {
	if factor <= 0 {
		factor = DefaultBackoffFactor
	}
	if limit <= 0 {
		limit = DefaultBackoffMax
	}
	return func(n int) time.Duration {
		d := factor
		for range n {
			if d >= limit/2+1 {
				return limit
			}
			d *= 2
		}
		return min(d, limit)
	}
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

// Retry turns a handler's ordinary errors into retries, up to the task's MaxRetries. Without it a failed task is not run
// again unless its handler asks for it.
func Retry(c RetryConfig) Middleware {
	return func(next task.Handler) task.Handler {
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
	}
}

func isVerdict(err error) bool { return task.VerdictOf(err) != nil }
