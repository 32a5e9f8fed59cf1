package sqljobs

import (
	"sync"
	"time"
)

const (
	// clockAge is the age up to which an answer about the server's clock is used.
	clockAge = time.Second
	// clockStep is the largest accepted difference between wall clock and monotonic clock. Above it
	// the machine has slept, and the server is asked again.
	clockStep = 50 * time.Millisecond
)

// clock holds a lower bound of the server's time: the server's last answer plus the time since. So
// a call needs no round trip to learn the time. A record that is due by this bound is due by the
// server's clock, which decides. Safe for concurrent use.
type clock struct {
	mu    sync.Mutex
	base  int64     // server time in microseconds
	at    time.Time // local time at which base had certainly passed
	fresh time.Time // local time of the server's last answer
	busy  bool      // a call is asking the server
}

// now returns the lower bound of the present server time, in microseconds since 1970. It takes
// c.mu. Before the first call of set the result is meaningless.
func (c *clock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bound(time.Now())
}

// bound returns the lower bound of the server's time for the local time at, in microseconds. It
// counts the time since c.at one part in 8192 slower, for a fast local clock. Call it with c.mu
// held.
func (c *clock) bound(at time.Time) int64 {
	since := at.Sub(c.at).Microseconds()
	return c.base + since - since>>13
}

// old reports whether the caller must ask the server for its time now, and then call askEnded. It
// is true before the first answer, after clockAge, and after the machine has slept.
//
// Until the caller has called askEnded, old returns false to other callers, for at most five times
// clockAge. It takes c.mu.
func (c *clock) old() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	age := now.Sub(c.fresh)
	wall := now.Round(0).Sub(c.fresh.Round(0))
	if !c.fresh.IsZero() && (c.busy && age < 5*clockAge || age < clockAge && (wall-age).Abs() < clockStep) {
		return false
	}
	c.busy = true
	return true
}

// askEnded records that the call that asked the server has ended, successfully or not. It takes
// c.mu.
func (c *clock) askEnded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
}

// set stores us, the server's answer to a request sent at the local time asked. It replaces the
// bound if that is too low, or too high because the server's clock was set back. In each case the
// bound counts as fresh. It takes c.mu.
func (c *clock) set(us int64, asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if bound := c.bound(now); us > bound || bound > us+now.Sub(asked).Microseconds()+1000 {
		c.base, c.at = us, now
	}
	c.fresh = now
}

// note raises the bound to us, a server time that came with another answer. It never lowers the
// bound. It does nothing before the first call of set. It takes c.mu.
func (c *clock) note(us int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); us > c.bound(now) && !c.fresh.IsZero() {
		c.base, c.at = us, now
	}
}
