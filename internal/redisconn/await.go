package redisconn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

// grace is the time in which the client may itself detect that ctx has ended. Its own error is more
// exact.
const grace = 50 * time.Millisecond

// callCtx is the ctx of a call that await may abandon. When the client writes, it checks only the
// deadline of a ctx. callCtx therefore reports a past deadline once ctx has ended, so that no
// command is sent for a caller that has returned.
type callCtx struct{ context.Context }

// Deadline returns the deadline of the wrapped ctx, or a time in the past once that ctx has ended.
func (c callCtx) Deadline() (time.Time, bool) {
	if c.Err() != nil {
		return time.Unix(1, 0), true
	}
	return c.Context.Deadline()
}

// answer holds the results of a call.
type answer struct {
	v   any
	err error
}

// await makes a call on a goroutine and returns when ctx ends, although the client would wait until
// a deadline or for ReadTimeout. After ctx has ended it still waits up to grace for the call's own
// answer. An abandoned call returns [ErrIndeterminate]. Its goroutine ends with the connection or
// at that timeout. Returns redis.ErrClosed, without a call, after Close.
//
// If ctx never ends, await makes the call itself, without a goroutine.
func (c *Conn) await(ctx context.Context, call func(context.Context) (any, error)) (any, error) {
	if ctx.Done() == nil {
		return call(ctx)
	}
	answers := make(chan answer, 1)
	if !c.spawn(func() {
		v, err := call(callCtx{ctx})
		answers <- answer{v, err}
	}) {
		return nil, redis.ErrClosed
	}
	select {
	case a := <-answers:
		return a.v, because(ctx, a.err)
	case <-ctx.Done():
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case a := <-answers:
		return a.v, because(ctx, a.err)
	case <-t.C:
		return nil, &failure{ErrIndeterminate, ctx.Err()}
	}
}

// because adds ctx's error to a timeout that the past deadline of an ended ctx has caused: see
// callCtx.
func because(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// spawn runs fn on a goroutine of c.calls, for which Close waits. It returns false, without a
// start, after Close. It takes c.mu.
func (c *Conn) spawn(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.calls.Go(fn)
	return true
}
