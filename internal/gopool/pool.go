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
	next    chan job
	closed  chan struct{}
	close   sync.Once
	whole   *Pool        // the Pool of which this is a part, or nil
	working atomic.Int64 // functions that run
	waiting atomic.Int32 // callers of Wait; mu is held while it changes
	mu      sync.Mutex
	idle    *sync.Cond // no function runs; uses mu
}

// job is a function with the Pool that counts it.
type job struct {
	fn func()
	of *Pool
}

// New makes a Pool without goroutines.
func New() *Pool {
	c := &Pool{next: make(chan job), closed: make(chan struct{})}
	c.idle = sync.NewCond(&c.mu)
	return c
}

// Part returns a Pool that uses the goroutines of c. Its Wait waits only for its own functions and
// Holds; Wait of c also waits for those of its parts. Do not close it.
func (c *Pool) Part() *Pool {
	p := &Pool{next: c.next, closed: c.closed, whole: c}
	p.idle = sync.NewCond(&p.mu)
	return p
}

// Go runs fn on an idle goroutine, or on a new one. It does not wait for fn. A panic of fn is not
// recovered.
func (c *Pool) Go(fn func()) {
	c.Hold()
	select {
	case c.next <- job{fn, c}:
	default:
		go c.work(job{fn, c})
	}
}

// Hold makes Wait wait as for a running function, until a call of Release.
func (c *Pool) Hold() {
	c.working.Add(1)
	if c.whole != nil {
		c.whole.working.Add(1)
	}
}

// Release ends one call of Hold, and wakes the callers of Wait after the last one.
func (c *Pool) Release() { c.ended() }

// Wait blocks until no function runs and each Hold was released. Go may be called meanwhile, which
// a sync.WaitGroup does not allow. It takes c.mu, but does not hold it while it blocks.
func (c *Pool) Wait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting.Add(1) // before working is read: see ended
	defer c.waiting.Add(-1)
	for c.working.Load() > 0 {
		c.idle.Wait()
	}
}

// Close ends the idle goroutines, and each busy one after its function. It does not wait and is
// idempotent. Go still works after Close.
func (c *Pool) Close() { c.close.Do(func() { close(c.closed) }) }

// work runs j and then further functions, until none comes for the time linger or the Pool is
// closed. A function that calls runtime.Goexit counts as ended.
func (c *Pool) work(j job) {
	idle := time.NewTimer(linger)
	defer idle.Stop()
	for j.fn != nil {
		j.run()
		idle.Reset(linger)
		j = c.wait(idle.C)
	}
}

// run calls the function and then ended, also if it panics or calls runtime.Goexit.
func (j job) run() {
	defer j.of.ended()
	j.fn()
}

// ended counts a function that has ended, or a call of Release, and wakes the callers of Wait after
// the last one. It takes c.mu only if Wait runs: with few workers, each Release is the last one.
func (c *Pool) ended() {
	if c.working.Add(-1) == 0 && c.waiting.Load() > 0 {
		c.mu.Lock()
		c.idle.Broadcast()
		c.mu.Unlock()
	}
	if c.whole != nil {
		c.whole.ended()
	}
}

// wait blocks until Go gives another function, and returns it. It returns a job without a function
// when the idle timer fires or the Pool is closed.
func (c *Pool) wait(idle <-chan time.Time) job {
	select {
	case j := <-c.next:
		return j
	case <-idle:
	case <-c.closed:
	}
	return job{}
}
