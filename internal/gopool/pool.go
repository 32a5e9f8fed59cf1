// Package gopool runs functions on goroutines that are reused for a while. A new goroutine must
// grow its stack again, which costs more than a short function with deep calls.
package gopool

import (
	"sync"
	"sync/atomic"
	"time"
)

// linger limits how long a goroutine stays without work.
const linger = time.Second

// Pool is a pool of reusable goroutines. Make one with [New]. Safe for concurrent use.
type Pool struct {
	next    chan func()
	closed  chan struct{}
	close   sync.Once
	working atomic.Int64 // functions that run
	mu      sync.Mutex
	idle    *sync.Cond // no function runs; uses mu
}

// New makes a Pool without goroutines.
func New() *Pool {
	c := &Pool{next: make(chan func()), closed: make(chan struct{})}
	c.idle = sync.NewCond(&c.mu)
	return c
}

// Go runs fn on an idle goroutine, or on a new one. It does not wait for fn. A panic of fn is not
// recovered.
func (c *Pool) Go(fn func()) {
	c.working.Add(1)
	select {
	case c.next <- fn:
	default:
		go c.work(fn)
	}
}

// Hold makes Wait wait as for a running function, until a call of Release.
func (c *Pool) Hold() { c.working.Add(1) }

// Release ends one call of Hold, and wakes the callers of Wait after the last one.
func (c *Pool) Release() { c.ended() }

// Wait blocks until no function runs and each Hold was released. Go may be called meanwhile, which
// a sync.WaitGroup does not allow. It takes c.mu, but does not hold it while it blocks.
func (c *Pool) Wait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.working.Load() > 0 {
		c.idle.Wait()
	}
}

// Close ends the idle goroutines, and each busy one after its function. It does not wait and is
// idempotent. Go still works after Close.
func (c *Pool) Close() { c.close.Do(func() { close(c.closed) }) }

// work runs fn and then further functions, until none comes for the time linger or the Pool is
// closed. A function that calls runtime.Goexit counts as ended.
func (c *Pool) work(fn func()) {
	idle := time.NewTimer(linger)
	defer idle.Stop()
	for fn != nil {
		c.run(fn)
		idle.Reset(linger)
		fn = c.wait(idle.C)
	}
}

// run calls fn and then ended, also if fn panics or calls runtime.Goexit.
func (c *Pool) run(fn func()) {
	defer c.ended()
	fn()
}

// ended counts a function that has ended, or a call of Release, and wakes the callers of Wait after
// the last one. It takes c.mu only for that.
func (c *Pool) ended() {
	if c.working.Add(-1) == 0 {
		c.mu.Lock()
		c.idle.Broadcast()
		c.mu.Unlock()
	}
}

// wait blocks until Go gives another function, and returns it. It returns nil when the idle timer
// fires or the Pool is closed.
func (c *Pool) wait(idle <-chan time.Time) func() {
	select {
	case fn := <-c.next:
		return fn
	case <-idle:
	case <-c.closed:
	}
	return nil
}
