package consumer

import (
	"context"
	"sync/atomic"
	"time"
)

// A suspect runs alone in its process, within bounds: a task that ends its process does so soon, and the others must not wait
// for one that is only long.
const (
	aloneWait  = 10 * time.Second // for runs that go on when the suspect comes
	aloneLimit = 30 * time.Second // after which other tasks are started beside it
	alonePoll  = 5 * time.Millisecond
)

// solo lets one suspect at a time run while nothing else is started. The zero value is ready.
type solo struct {
	now atomic.Pointer[solitude]
}

// solitude is the time a suspect has to itself.
type solitude struct {
	over context.Context // ends with the suspect, or at the limit
	end  context.CancelFunc
}

// enter counts a run in, when the suspect that runs has had its time. False: the task must not be started, since the consumer stops
// or the queue is paused.
func (c *Consumer) enter(r *run) bool {
	for {
		c.running.add(r)
		s := c.solo.now.Load() // after add, so that a suspect that comes now either sees the run or is seen
		if s == nil || s.over.Err() != nil || r.queue.suspects {
			return true
		}
		c.running.remove(r)
		if !r.outwait(s) {
			return false
		}
	}
}

// outwait waits for the end of a suspect's time. False: the run must not start any more.
func (r *run) outwait(s *solitude) bool {
	ctx, cancel := r.queue.while(r)
	defer cancel()
	r.queue.c.reserved.add(r)
	defer r.queue.c.reserved.remove(r)
	select {
	case <-s.over.Done():
		return true
	case <-ctx.Done():
		return false
	}
}

// seclude begins a suspect's time alone: no other task is started, and those that run are waited for. False: another
// suspect has it.
func (c *Consumer) seclude(fetch context.Context) (end func(), ok bool) {
	s := &solitude{}
	s.over, s.end = context.WithTimeout(c.work, aloneWait+aloneLimit)
	if !c.solo.now.CompareAndSwap(nil, s) {
		s.end()
		return nil, false
	}
	waiting, stop := context.WithTimeout(fetch, aloneWait)
	defer stop()
	tick := time.NewTicker(alonePoll)
	defer tick.Stop()
	for c.running.len() > 0 {
		select {
		case <-tick.C:
			continue
		case <-waiting.Done():
		}
		break
	}
	return func() {
		s.end()
		c.solo.now.CompareAndSwap(s, nil)
	}, true
}
