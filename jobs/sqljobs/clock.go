package sqljobs

import (
	"sync"
	"time"
)

const (
	// clockAge is how long an answer of the server's clock is gone by.
	clockAge = time.Second
	// clockStep is by how much the machine's clock and its monotonic one may go apart before the server is asked again: the machine slept.
	clockStep = 50 * time.Millisecond
)

// clock is a lower bound of the server's time: what it said last and the time since. So a call needs no trip to learn what time it is, and what it
// stores as due now is due by the server's clock, which decides.
type clock struct {
	mu    sync.Mutex
	base  int64     // microseconds of the server
	at    time.Time // when they had passed for certain
	fresh time.Time // when the server was asked last
	busy  bool      // somebody asks
}

// now is the bound.
func (c *clock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bound(time.Now())
}

// bound lets the machine's clock be fast by one part in 8192.
func (c *clock) bound(at time.Time) int64 {
	since := at.Sub(c.at).Microseconds()
	return c.base + since - since>>13
}

// old reports whether the caller has to ask the server; nobody else does until looked.
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

func (c *clock) looked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
}

// set takes the answer to a question that was asked at that moment. Only then it is known whether the server's clock was set back.
func (c *clock) set(us int64, asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if bound := c.bound(now); us > bound || bound > us+now.Sub(asked).Microseconds()+1000 {
		c.base, c.at = us, now
	}
	c.fresh = now
}

// note takes a time that came with another answer.
func (c *clock) note(us int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); us > c.bound(now) && !c.fresh.IsZero() {
		c.base, c.at = us, now
	}
}
