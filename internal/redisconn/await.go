package redisconn

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// grace is how long the client may take to notice by itself that ctx has ended. What it says then is more exact.
	grace = 50 * time.Millisecond
	// idleCall is for how long the goroutine of a call waits for another: a new one would grow its stack anew.
	idleCall = time.Second
)

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
	select {
	case c.calls <- fn:
		return true
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start(func() { c.serve(fn) })
}

// serve runs fn, and then what others ask for, until it has been idle for a while.
func (c *Conn) serve(fn func()) {
	t := time.NewTimer(idleCall)
	defer t.Stop()
	for fn != nil {
		fn()
		t.Reset(idleCall)
		fn = c.nextCall(t.C)
	}
}

// nextCall waits for another call; nil: there is none.
func (c *Conn) nextCall(idle <-chan time.Time) func() {
	select {
	case fn := <-c.calls:
		return fn
	case <-idle:
	case <-c.done:
	}
	return nil
}
