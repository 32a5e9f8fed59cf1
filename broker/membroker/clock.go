package membroker

import (
	"container/heap"
	"sync"
	"time"
)

// clock holds the delayed items of a Server in a heap with one timer, which runs only while it has
// items. Its mutex may be taken while a queue's mutex is held, never the other way round.
type clock struct {
	mu      sync.Mutex
	items   byDue
	timer   *time.Timer
	stopped bool
}

// add adds the item, which has a due time. If the item is due first, it starts or advances the
// timer. After stop it only marks the item as in no heap. It takes c.mu.
func (c *clock) add(it *item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		it.index = -1
		return
	}
	heap.Push(&c.items, it)
	if it.index == 0 {
		c.arm(time.Now())
	}
}

// remove removes the item, unless fire or stop has removed it already. If no item is left it stops
// the timer. It takes c.mu.
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

// arm sets the timer to the due time of the first item. Without items it does nothing. Call it
// with c.mu held.
func (c *clock) arm(now time.Time) {
	if len(c.items) == 0 {
		return
	}
	d := c.items[0].due.Sub(now)
	if c.timer == nil {
		c.timer = time.AfterFunc(d, c.fire)
	} else {
		c.timer.Reset(d)
	}
}

// fire is called by the timer. It removes the items that are due, makes each ready in its queue,
// and sets the timer for the next one. It takes c.mu, then each queue's mutex, never both.
func (c *clock) fire() {
	type alarm struct {
		it *item
		at time.Time
	}
	var due []alarm
	c.mu.Lock()
	// The timer uses monotonic time, but a due time from another process is compared with the wall
	// clock. So an item may still be early here. It then waits for the rest.
	for now := time.Now(); len(c.items) > 0 && !c.items[0].due.After(now); {
		it := heap.Pop(&c.items).(*item)
		due = append(due, alarm{it, it.due})
	}
	c.arm(time.Now())
	c.mu.Unlock()
	for _, a := range due {
		a.it.q.makeReady(a.it, a.at)
	}
}

// stop removes all items and stops the timer for good: add then adds nothing. It takes c.mu.
func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	for _, it := range c.items { // a call that began before may still remove one
		it.index = -1
	}
	c.items = nil
	if c.timer != nil {
		c.timer.Stop()
	}
}
