package membroker

import (
	"container/heap"
	"sync"
	"time"
)

// clock holds the delayed items of a Server behind one timer, which runs only while there are any.
// Its mutex may be taken while a queue's is held, never the other way round.
type clock struct {
	mu    sync.Mutex
	items byDue
	timer *time.Timer
}

func (c *clock) add(it *item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	heap.Push(&c.items, it)
	if it.index == 0 {
		c.arm(time.Now())
	}
}

// remove takes it out, unless it is on its way to its queue already.
func (c *clock) remove(it *item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if it.index >= 0 {
		heap.Remove(&c.items, it.index)
	}
	if len(c.items) == 0 && c.timer != nil {
		c.timer.Stop()
	}
}

// arm sets the timer to the first item. The caller holds mu.
func (c *clock) arm(now time.Time) {
	if len(c.items) == 0 {
		return
	}
	d := c.items[0].due.Sub(now)
	if c.timer == nil {
		c.timer = time.AfterFunc(d, c.ring)
	} else {
		c.timer.Reset(d)
	}
}

// ring gives what has come due back to its queue.
func (c *clock) ring() {
	type alarm struct {
		it *item
		at time.Time
	}
	var due []alarm
	c.mu.Lock()
	// The timer keeps monotonic time; a due time that came from another process is compared on the wall clock, so that an
	// item may still be early here and waits for the rest.
	for now := time.Now(); len(c.items) > 0 && !c.items[0].due.After(now); {
		it := heap.Pop(&c.items).(*item)
		due = append(due, alarm{it, it.due})
	}
	c.arm(time.Now())
	c.mu.Unlock()
	for _, a := range due {
		a.it.q.due(a.it, a.at)
	}
}

// stop ends the timer for good.
func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.items = nil
	if c.timer != nil {
		c.timer.Stop()
	}
}
