package guard

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// ErrGoexit is the error of a handler that called runtime.Goexit. It wraps [task.ErrPanic].
var ErrGoexit = fmt.Errorf("%w: the handler ended its goroutine", task.ErrPanic)

// Grace is the time that a handler has to return after its hard limit before it counts as stuck.
const Grace = time.Second

// Run runs h within the time limits of q's metadata and returns its result. A panic is returned as
// a [*task.PanicError].
//
//   - At the soft limit the handler's context ends with cause [task.ErrSoftTimeLimit]. The handler
//     decides the result.
//   - At the hard limit the context ends with cause [task.ErrTimeLimit]. Run returns that error
//     when h has returned, or after [Grace] even if h still runs. In the second case Run calls
//     stuck with +1, and later with -1 when h returns.
//   - If stuck is nil, there is no grace: Run returns at the hard limit.
//
// Without a hard limit h runs on the calling goroutine, which runtime.Goexit ends; see [Apart].
func Run(ctx context.Context, h task.Handler, q *task.Request, stuck func(q *task.Request, delta int)) (any, error) {
	soft := q.Effective.SoftTimeLimit.Or(0)
	switch {
	case q.Effective.TimeLimit.Or(0) > 0:
		return Apart(ctx, h, q, stuck)
	case soft <= 0:
		return call(ctx, h, q)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer after(soft, cancel).Stop()
	return call(ctx, h, q)
}

// Apart runs h within the time limits of q's metadata like [Run], but always on another goroutine.
// It returns [ErrGoexit] if h calls runtime.Goexit.
func Apart(ctx context.Context, h task.Handler, q *task.Request, stuck func(q *task.Request, delta int)) (any, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if soft := q.Effective.SoftTimeLimit.Or(0); soft > 0 {
		defer after(soft, cancel).Stop()
	}
	var limit <-chan time.Time
	hard := q.Effective.TimeLimit.Or(0)
	if hard > 0 {
		t := time.NewTimer(hard)
		defer t.Stop()
		limit = t.C
	}
	done := make(chan returned, 1)
	go func() {
		r := returned{err: ErrGoexit}
		defer func() { done <- r }()
		r.value, r.err = call(ctx, h, q)
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-limit:
	}
	select {
	case r := <-done: // it ended at the same moment, before its context
		return r.value, r.err
	default:
	}
	err := fmt.Errorf("%w of %s", task.ErrTimeLimit, hard)
	cancel(err)
	if stuck == nil {
		return nil, err
	}
	grace := time.NewTimer(Grace)
	defer grace.Stop()
	select {
	case <-done:
	case <-grace.C:
		stuck(q, +1)
		go func() {
			<-done
			stuck(q, -1)
		}()
	}
	return nil, err
}

// returned holds the results of a handler.
type returned struct {
	value any
	err   error
}

// after starts a timer that ends a handler's context with [task.ErrSoftTimeLimit] after the time
// soft. Stop the returned timer when the handler has returned.
func after(soft time.Duration, cancel context.CancelCauseFunc) *time.Timer {
	return time.AfterFunc(soft, func() { cancel(fmt.Errorf("%w of %s", task.ErrSoftTimeLimit, soft)) })
}

// call runs h on the calling goroutine and returns its result. A panic is returned as a
// [*task.PanicError].
func call(ctx context.Context, h task.Handler, q *task.Request) (value any, err error) {
	defer Recover(&err)
	return h.Handle(ctx, q)
}
