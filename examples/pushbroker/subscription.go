package pushbroker

import (
	"context"
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/broker"
)

// subscription is a node that listens to a queue.
type subscription struct {
	node   *Node
	queue  *queue
	limit  int // limit of held messages; 0 or less: unlimited
	closed bool
	inbox  []*item // assigned and not delivered
	// calls of Receive, the longest first; each channel takes one delivery
	waiting   []chan<- *delivery
	unsettled map[*delivery]struct{} // delivered
}

func (s *subscription) held() int { return len(s.inbox) + len(s.unsettled) }

// room reports whether a message may be assigned to s. Push fills the inbox up to the limit. AtOnce
// needs a waiting worker.
func (s *subscription) room() bool {
	return (s.limit <= 0 || s.held() < s.limit) && (s.queue.hub.push || len(s.waiting) > 0)
}

// serve hands the inbox to the calls that wait.
func (s *subscription) serve() {
	for len(s.inbox) > 0 && len(s.waiting) > 0 {
		it, ch := s.inbox[0], s.waiting[0]
		s.inbox, s.waiting = s.inbox[1:], s.waiting[1:]
		it.deliveries++
		d := &delivery{sub: s, item: it, n: it.deliveries}
		s.unsettled[d] = struct{}{}
		ch <- d
	}
}

// Receive implements [broker.Subscription].
func (s *subscription) Receive(ctx context.Context) (broker.Delivery, error) {
	ch := make(chan *delivery, 1)
	if !s.wait(ch) {
		return nil, errClosed
	}
	select {
	case d := <-ch: // a held message is returned even if ctx is done
		return received(d)
	default:
	}
	select {
	case d := <-ch:
		return received(d)
	case <-ctx.Done():
	}
	if s.giveUp(ch) {
		return nil, fmt.Errorf("pushbroker: receive: %w", ctx.Err())
	}
	return received(<-ch) // it came in the same instant
}

var errClosed = fmt.Errorf("pushbroker: %w", broker.ErrClosed)

// received returns the delivery, or ErrClosed for nil, which means that the channel was closed.
func received(d *delivery) (broker.Delivery, error) {
	if d == nil {
		return nil, errClosed
	}
	return d, nil
}

// wait lets ch take the next delivery, or reports that there will be none.
func (s *subscription) wait(ch chan<- *delivery) bool {
	s.node.hub.mu.Lock()
	defer s.node.hub.mu.Unlock()
	if s.closed {
		return false
	}
	s.waiting = append(s.waiting, ch)
	s.serve()
	s.queue.place()
	return true
}

// giveUp takes ch back, or reports that it was used.
func (s *subscription) giveUp(ch chan<- *delivery) bool {
	s.node.hub.mu.Lock()
	defer s.node.hub.mu.Unlock()
	i := slices.Index(s.waiting, ch)
	if i < 0 {
		return false
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return true
}

// Close implements [broker.Subscription].
func (s *subscription) Close(context.Context) error {
	s.node.hub.mu.Lock()
	defer s.node.hub.mu.Unlock()
	s.close()
	return nil
}

func (s *subscription) close() {
	if s.closed {
		return
	}
	s.closed = true
	s.queue.listeners = slices.DeleteFunc(s.queue.listeners, func(o *subscription) bool { return o == s })
	for _, ch := range s.waiting {
		close(ch)
	}
	back := s.inbox
	s.waiting, s.inbox = nil, nil
	s.queue.giveBack(back...)
}
