package membroker

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
)

// waiter is a goroutine that waits in Receive for a delivery, or in Publish for room.
type waiter struct {
	link     links[waiter]
	ch       chan struct{} // gets one value when the wait is over; it has room for it
	d        *delivery
	err      error
	admitted bool
	woken    *waiter // the next to be woken
}

func (w *waiter) links() *links[waiter] { return &w.link }

// subscription implements broker.Subscription and broker.Resizer. All below q is guarded by q.mu.
type subscription struct {
	q *queue
	b *Broker

	link      links[subscription]
	waiters   chain[waiter, *waiter]
	held      chain[delivery, *delivery] // handed out and not settled, oldest first
	unsettled int
	limit     int // of unsettled; -1: none
	lost      chan struct{}
	live      bool  // its broker is connected
	err       error // why Receive has ended for good
	isEager   bool  // it is in q.eager
}

func (s *subscription) links() *links[subscription] { return &s.link }

// room reports whether s may be given one more message.
func (s *subscription) room() bool {
	return s.live && s.err == nil && (s.limit < 0 || s.unsettled < s.limit)
}

// refresh puts s into the line of those that take messages, or out of it.
func (s *subscription) refresh() {
	switch is := s.waiters.head != nil && s.room(); {
	case is && !s.isEager:
		s.q.eager.push(s)
		s.isEager = true
	case !is && s.isEager:
		s.q.eager.remove(s)
		s.isEager = false
	}
}

// Receive implements [broker.Subscription].
func (s *subscription) Receive(ctx context.Context) (broker.Delivery, error) {
	q := s.q
	q.mu.Lock()
	if s.err != nil {
		err := s.err
		q.unlock()
		return nil, err
	}
	// Whoever waits has been given what was ready, so that what is ready now is for this caller.
	if s.room() {
		if it := q.next(); it != nil {
			d := q.hand(it, s)
			s.refresh()
			q.unlock()
			return d, nil
		}
	}
	if err := ctx.Err(); err != nil {
		q.unlock()
		return nil, err
	}
	w := q.s.newWaiter()
	s.waiters.push(w)
	s.refresh()
	q.unlock()

	select {
	case <-w.ch:
	case <-ctx.Done():
		q.mu.Lock()
		if w.d == nil && w.err == nil {
			s.waiters.remove(w)
			s.refresh()
			q.unlock()
			q.s.freeWaiter(w)
			return nil, ctx.Err()
		}
		q.unlock()
		<-w.ch // whoever answered is about to send
	}
	d, err := w.d, w.err
	q.s.freeWaiter(w)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Close implements [broker.Subscription].
func (s *subscription) Close(context.Context) error {
	q := s.q
	q.mu.Lock()
	s.end(fmt.Errorf("membroker: subscription to %q: %w", q.name, broker.ErrClosed))
	idle := s.unsettled == 0
	q.unlock()
	if idle {
		s.b.forget(s)
	}
	return nil
}

// SetPrefetch implements [broker.Resizer].
func (s *subscription) SetPrefetch(_ context.Context, n int) error {
	q := s.q
	q.mu.Lock()
	defer q.unlock()
	if s.err != nil {
		return s.err
	}
	s.limit = max(n, 0)
	s.refresh()
	q.dispatch()
	return nil
}

// end makes Receive return err from now on. The caller holds q.mu.
func (s *subscription) end(err error) {
	if s.err != nil {
		return
	}
	s.err = err
	s.refresh()
	for w := s.waiters.head; w != nil; w = s.waiters.head {
		s.waiters.remove(w)
		w.err = err
		s.q.later(w)
	}
}

// shut is end for callers without q.mu.
func (s *subscription) shut(err error) {
	s.q.mu.Lock()
	defer s.q.unlock()
	s.end(err)
}

// ended reports whether s was closed.
func (s *subscription) ended() bool {
	s.q.mu.Lock()
	defer s.q.unlock()
	return s.err != nil
}

// pause keeps s from being given messages until revive. All subscriptions of a connection pause before the first is
// severed, so that none gets what another has just lost.
func (s *subscription) pause() {
	s.q.mu.Lock()
	defer s.q.unlock()
	s.live = false
	s.refresh()
}

// sever ends the connection epoch of a paused or ended subscription: what is unsettled is lost and goes back to the front of the queue.
func (s *subscription) sever() {
	q := s.q
	q.mu.Lock()
	defer q.unlock()
	for d := s.held.head; d != nil; d = s.held.head {
		s.held.remove(d)
		d.state = taken
		q.held--
		q.giveBack(d.item)
	}
	s.unsettled = 0
	q.dispatch()
}

// revive begins a connection epoch, whose end closes lost.
func (s *subscription) revive(lost chan struct{}) {
	q := s.q
	q.mu.Lock()
	defer q.unlock()
	s.live, s.lost = true, lost
	s.refresh()
	q.dispatch()
}
