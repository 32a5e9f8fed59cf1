// Package crew runs functions on goroutines that stay for a while when they have ended one: a new goroutine has to grow its
// stack anew, which for a short function that calls deep costs more than the function.
package crew

import (
	"sync"
	"time"
)

// linger is how long a goroutine without work stays.
const linger = time.Second

// Crew is such goroutines. Make one with [New]. All methods may be called from any goroutine.
type Crew struct {
	next    chan func()
	closed  chan struct{}
	close   sync.Once
	working sync.WaitGroup
}

// New makes a Crew, which has no goroutine yet.
func New() *Crew { return &Crew{next: make(chan func()), closed: make(chan struct{})} }

// Go runs fn on a goroutine that has nothing to do, or on a new one. It does not wait.
func (c *Crew) Go(fn func()) {
	c.working.Add(1)
	select {
	case c.next <- fn:
	default:
		go c.work(fn)
	}
}

// Wait waits until no function is under way.
func (c *Crew) Wait() { c.working.Wait() }

// Close lets the goroutines that have nothing to do go, and the others when they have ended what they do. Go may be called all
// the same. It waits for nothing and is idempotent.
func (c *Crew) Close() { c.close.Do(func() { close(c.closed) }) }

// work runs fn, and then what others ask for, until there was nothing for a while. A function that ends its goroutine, with
// runtime.Goexit, counts as ended.
func (c *Crew) work(fn func()) {
	idle := time.NewTimer(linger)
	defer idle.Stop()
	for fn != nil {
		c.run(fn)
		idle.Reset(linger)
		fn = c.wait(idle.C)
	}
}

func (c *Crew) run(fn func()) {
	defer c.working.Done()
	fn()
}

// wait waits for another function; nil: there is none.
func (c *Crew) wait(idle <-chan time.Time) func() {
	select {
	case fn := <-c.next:
		return fn
	case <-idle:
	case <-c.closed:
	}
	return nil
}
