package errand

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/task"
)

// ErrGone is the error of a handler that ended its goroutine.
var ErrGone = errors.New("the handler ended its goroutine")

// Handle runs a handler on a goroutine of its own, within the limits of its metadata, as a consumer does: what it panics with is its error, and
// so is the end of its goroutine. At the soft limit its context ends with cause [task.ErrSoftTimeLimit]. At the hard one it ends
// with [task.ErrTimeLimit], which is then the error whether the handler has returned or not.
func Handle(ctx context.Context, h task.Handler, q *task.Request) (any, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if soft := q.Effective.SoftTimeLimit.Or(0); soft > 0 {
		defer time.AfterFunc(soft, func() { cancel(fmt.Errorf("%w of %s", task.ErrSoftTimeLimit, soft)) }).Stop()
	}
	var limit <-chan time.Time
	hard := q.Effective.TimeLimit.Or(0)
	if hard > 0 {
		t := time.NewTimer(hard)
		defer t.Stop()
		limit = t.C
	}
	done := make(chan returned, 1)
	go call(ctx, h, q, done)
	select {
	case r := <-done:
		return r.value, r.err
	case <-limit:
	}
	err := fmt.Errorf("%w of %s", task.ErrTimeLimit, hard)
	cancel(err)
	select {
	case r := <-done: // it ended in the same instant
		return r.value, r.err
	default:
		return nil, err
	}
}

// returned is what a handler returned.
type returned struct {
	value any
	err   error
}

func call(ctx context.Context, h task.Handler, q *task.Request, done chan<- returned) {
	r := returned{err: ErrGone}
	defer func() { done <- r }()
	defer guard.Recover(&r.err)
	value, err := h.Handle(ctx, q)
	r = returned{value, err}
}
