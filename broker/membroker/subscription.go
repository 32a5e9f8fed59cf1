package membroker

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/floor"
)

// waiter is a goroutine that waits in Receive for a delivery, or in Publish for room.
type waiter struct {
	link     links[waiter]
	ch       chan struct{} // receives one value when the wait is over; capacity 1
	d        *delivery     // the outcome of a Receive: a delivery or err
	err      error
	admitted bool    // a publisher may continue, because its queue has room
	woken    *waiter // the next waiter that is woken
}

// links returns a pointer to the neighbors of w in its chain, which the chain changes.
func (w *waiter) links() *links[waiter] { return &w.link }

// subscription implements broker.Subscription and broker.Resizer. q.mu guards all fields below q
// and b.
type subscription struct {
	q *queue
	b *Broker

	link      links[subscription]
	waiters   chain[waiter, *waiter]
	held      chain[delivery, *delivery] // delivered and not settled, oldest first
	unsettled int
	limit     int // of unsettled deliveries; -1: no limit
	lost      chan struct{}
	live      bool  // its Broker is connected
	err       error // error of Receive after Close
	isEager   bool  // it is in q.eager
	floor     floor.Floor
	bounds    *broker.Bounds // one of q.load.known; nil: no limit
}

// links returns a pointer to the neighbors of s in its chain, which the chain changes.
func (s *subscription) links() *links[subscription] { return &s.link }

// hasRoom reports whether s may get one more message: its Broker is connected, s is open, and its
// unsettled deliveries are below the limit. Call it with q.mu held.
func (s *subscription) hasRoom() bool {
	return s.live && s.err == nil && (s.limit < 0 || s.unsettled < s.limit)
}

// refresh adds s to q.eager, the subscriptions that can get messages, or removes it from there. s
// belongs there if a receiver waits and hasRoom is true. Call it with q.mu held after each change
// of the waiters, the prefetch or the connection.
func (s *subscription) refresh() {
	switch is := s.waiters.head != nil && s.hasRoom(); {
	case is && !s.isEager:
		s.q.eager.push(s)
		s.isEager = true
	case !is && s.isEager:
		s.q.eager.remove(s)
		s.isEager = false
	}
}

// Receive implements [broker.Subscription]. It blocks until a message is ready and the prefetch has
// room, ctx ends, or the subscription or the Broker is closed. A ready message is returned even if
// ctx has ended. Waiting callers are served in order. Without a connection it waits for the next
// one. It takes q.mu, but does not hold it while it waits. Returns ctx.Err() if ctx ends first,
// ErrClosed after Close.
func (s *subscription) Receive(ctx context.Context) (broker.Delivery, error) {
	q := s.q
	q.mu.Lock()
	if s.err != nil {
		err := s.err
		q.unlock()
		return nil, err
	}
	// Waiting receivers have got their messages already, so a ready message belongs to this caller.
	if s.hasRoom() {
		if it := q.next(s); it != nil {
			d := q.deliver(it, s)
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
		<-w.ch // the other goroutine is about to send
	}
	d, err := w.d, w.err
	q.s.freeWaiter(w)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Close implements [broker.Subscription]. It makes all calls of Receive return ErrClosed, does not
// wait, and returns nil. Unsettled deliveries can still be settled. The Broker forgets the
// subscription after the last of them. It takes q.mu, then b.mu.
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

// SetPrefetch implements [broker.Resizer]. It takes effect at once and may deliver messages to
// waiting receivers. A negative n counts as 0, which stops the deliveries. Returns ErrClosed after
// Close. It takes q.mu and does not wait.
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

// end makes Receive return err from now on, and wakes the waiting receivers with err at the next
// unlock. If s has ended already, nothing changes. Call it with q.mu held.
func (s *subscription) end(err error) {
	if s.err != nil {
		return
	}
	s.err = err
	s.refresh()
	for w := s.waiters.head; w != nil; w = s.waiters.head {
		s.waiters.remove(w)
		w.err = err
		s.q.wakeLater(w)
	}
}

// endUnlocked calls end for a caller that does not hold q.mu. It takes q.mu.
func (s *subscription) endUnlocked(err error) {
	s.q.mu.Lock()
	defer s.q.unlock()
	s.end(err)
}

// isClosed reports whether s was closed. It takes q.mu.
func (s *subscription) isClosed() bool {
	s.q.mu.Lock()
	defer s.q.unlock()
	return s.err != nil
}

// pause stops the delivery of messages to s until resume. It takes q.mu. All subscriptions of a
// connection pause before the first is cut, so that none gets a message that another has just lost.
func (s *subscription) pause() {
	s.q.mu.Lock()
	defer s.q.unlock()
	s.live = false
	s.refresh()
}

// cut marks the unsettled deliveries of a paused or closed subscription as lost. It returns their
// messages to their old places in the queue and gives them to receivers of other subscriptions.
// It does not close the Lost channel; the caller does. It takes q.mu.
func (s *subscription) cut() {
	q := s.q
	q.mu.Lock()
	defer q.unlock()
	for d := s.held.head; d != nil; d = s.held.head {
		s.held.remove(d)
		d.state = taken
		q.undeliver(d.item)
		q.giveBack(d.item)
	}
	s.unsettled = 0
	q.dispatch()
}

// resume lets s get messages again on a new connection, and gives ready messages to its
// receivers. lost is closed at the end of that connection. It takes q.mu.
func (s *subscription) resume(lost chan struct{}) {
	q := s.q
	q.mu.Lock()
	defer q.unlock()
	s.live, s.lost = true, lost
	s.refresh()
	q.dispatch()
}
