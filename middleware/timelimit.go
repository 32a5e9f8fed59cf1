package middleware

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/task"
)

// TimeLimit enforces the soft and the hard time limit of a task's metadata; a consumer has it built in, innermost.
//
// At the soft limit the handler's context ends with cause [task.ErrSoftTimeLimit], and the handler decides what it returns.
// At the hard limit the context ends with cause [task.ErrTimeLimit] and the run is over with that error, whether or not
// the handler has returned. A handler that goes on is abandoned: stuck (nil for nobody) is called with +1 then, and with -1
// when it returns at last. A task without limits costs nothing.
func TimeLimit(stuck func(delta int)) Middleware {
	if stuck == nil {
		stuck = func(int) {}
	}
	return func(next task.Handler) task.Handler {
		return task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
			soft, hard := r.Effective.SoftTimeLimit.Or(0), r.Effective.TimeLimit.Or(0)
			if soft <= 0 && hard <= 0 {
				return next.Handle(ctx, r)
			}
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			if soft > 0 {
				timer := time.AfterFunc(soft, func() {
					cancel(fmt.Errorf("%w of %s", task.ErrSoftTimeLimit, soft))
				})
				defer timer.Stop()
			}
			if hard <= 0 {
				return next.Handle(ctx, r)
			}
			return runBounded(ctx, cancel, next, r, hard, stuck)
		})
	}
}

type outcome struct {
	result any
	err    error
}

// runBounded runs the handler on a goroutine of its own, so that the worker can leave it behind.
func runBounded(ctx context.Context, cancel context.CancelCauseFunc, next task.Handler, r *task.Request, hard time.Duration, stuck func(int)) (any, error) {
	done := make(chan outcome, 1)
	go func() {
		o := outcome{err: fmt.Errorf("%w: runtime.Goexit was called", task.ErrPanic)} // what stays when the goroutine ends without a return
		defer func() { done <- o }()
		defer guard.Recover(&o.err)
		result, err := next.Handle(ctx, r)
		o = outcome{result, err}
	}()
	timer := time.NewTimer(hard)
	defer timer.Stop()
	select {
	case o := <-done:
		return o.result, o.err
	case <-timer.C:
	}
	limit := fmt.Errorf("%w of %s", task.ErrTimeLimit, hard)
	cancel(limit)
	select {
	case o := <-done: // it ended in the same instant
		return o.result, o.err
	default:
	}
	stuck(+1)
	go func() {
		<-done
		stuck(-1)
	}()
	return nil, limit
}
