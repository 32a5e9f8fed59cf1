package consumer

import (
	"context"
	"sync/atomic"
	"time"
)

// A task that has ended its process once runs alone in the next one, within bounds: a task that
// ends its process does so soon, and the others must not wait for one that is only long.
const (
	quarantineWait  = 10 * time.Second // for runs that go on when the suspect comes
	quarantineLimit = 30 * time.Second // after which other tasks are started beside it
	quarantinePoll  = 5 * time.Millisecond
)

// quarantine lets one suspect at a time run while nothing else is started. The zero value is ready.
type quarantine struct {
	now atomic.Pointer[isolation]
}

// isolation is the time that a suspect has to itself.
type isolation struct {
	suspect *run
	over    context.Context // ends with the suspect, or at the limit
	end     context.CancelFunc
}

// enter counts a run in, when the suspect that runs has had its time. False: the task must not be
// started, since the consumer stops, the queue is paused, or the broker has the task back.
func (c *Consumer) enter(r *run) bool {
	for {
		c.running.Add(r, r.worker)
		i := c.quarantine.now.Load() // after add, so that a suspect that comes now either sees the run or is seen
		if i == nil || i.over.Err() != nil || i.suspect == r {
			return true
		}
		c.running.Remove(r, r.worker)
		if !r.outwait(i) {
			return false
		}
	}
}

// outwait waits for the end of a suspect's time. False: the run must not start any more.
func (r *run) outwait(i *isolation) bool {
	ctx, cancel := r.queue.while(r)
	defer cancel()
	r.queue.c.reserved.Add(r)
	defer r.queue.c.reserved.Remove(r)
	select {
	case <-i.over.Done():
		return true
	case <-ctx.Done():
		return false
	}
}

// isolate begins a suspect's time alone: no other task is started, and those that run are waited
// for. Another suspect's time is waited for first. False: the run must not start any more.
func (c *Consumer) isolate(r *run) (end func(), ok bool) {
	ctx, cancel := r.queue.while(r)
	defer cancel()
	var i *isolation
	for i == nil {
		if other := c.quarantine.now.Load(); other != nil {
			if !r.outwait(other) {
				return nil, false
			}
			c.quarantine.now.CompareAndSwap(other, nil) // its time is over even if it still runs
		}
		over, end := context.WithTimeout(c.work, quarantineWait+quarantineLimit)
		i = &isolation{suspect: r, over: over, end: end}
		if !c.quarantine.now.CompareAndSwap(nil, i) {
			i.end()
			i = nil
		}
	}
	waiting, stop := context.WithTimeout(ctx, quarantineWait)
	defer stop()
	tick := time.NewTicker(quarantinePoll)
	defer tick.Stop()
	for c.running.Len() > 0 && waiting.Err() == nil {
		select {
		case <-tick.C:
		case <-waiting.Done():
		}
	}
	end = func() {
		i.end()
		c.quarantine.now.CompareAndSwap(i, nil)
	}
	if ctx.Err() != nil {
		end()
		return nil, false
	}
	return end, true
}
