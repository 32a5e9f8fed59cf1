package redisconn

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// grace is how long the client may take to notice by itself that ctx has ended. What it says then is more exact.
const grace = 50 * time.Millisecond

// callCtx is the ctx of a call that may be given up. The client looks at deadlines and not at the end of a ctx when it
// writes; to it, a ctx that has ended has a deadline that is over, so that nothing is sent later for a caller that has left.
type callCtx struct{ context.Context }

func (c callCtx) Deadline() (time.Time, bool) {
	if c.Err() != nil {
		return time.Unix(1, 0), true
	}
	return c.Context.Deadline()
}

// answer is the end of a call.
type answer struct {
	v   any
	err error
}

// await makes a call and returns when ctx ends, although the client waits for an answer until a deadline or for ReadTimeout.
// A call that is given up has the class [ErrIndeterminate], and its goroutine ends with the connection or with those.
func (c *Conn) await(ctx context.Context, call func(context.Context) (any, error)) (any, error) {
	if ctx.Done() == nil {
		return call(ctx)
	}
	answers := make(chan answer, 1)
	if !c.do(func() {
		v, err := call(callCtx{ctx})
		answers <- answer{v, err}
	}) {
		return nil, redis.ErrClosed
	}
	select {
	case a := <-answers:
		return a.v, a.err
	case <-ctx.Done():
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case a := <-answers:
		return a.v, a.err
	case <-t.C:
		return nil, &failure{ErrIndeterminate, ctx.Err()}
	}
}

// do runs fn in a goroutine; false if the Conn is closed.
func (c *Conn) do(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.calls.Go(fn)
	return true
}
