package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/receive"
)

// unlimited is a prefetch without a bound; in the port it is 0, which is "stop" in SetPrefetch.
const unlimited = -1

// subscription is a pull on the consumers of a queue's levels.
type subscription struct {
	b      *Broker
	q      *queue
	lease  time.Duration // of the consumers
	levels []*level      // the most urgent first
	done   sync.WaitGroup

	fetch   context.Context // ends with Close: nothing is fetched any more
	end     context.CancelFunc
	life    context.Context // ends when the last delivery is settled
	release context.CancelFunc

	mu      sync.Mutex
	line    *receive.Line[delivery] // fails while the server lets us have nothing
	holds   []*hold
	renewed time.Time // when a renewal of all that was held went out that the server has read
	asked   time.Time // when the last renewal went out
	beat    time.Time // when the keeper last ran
	thawed  time.Time // not zero after a freeze: when it may have begun
}

// Subscribe implements [broker.Broker]: it makes the queue and its consumers if need be, and returns when they are there. The
// levels of a queue share Prefetch: each gets an equal part, what is left over goes to the most urgent ones, and each gets at
// least 1.
//
// The lease belongs to the server's consumer, which all processes share. The first subscription makes it with its own; one that
// asks for a longer lease lengthens it for all, and a shorter one takes effect only where nobody else consumes. Whatever holds
// is renewed in time by every process that has subscribed since.
func (b *Broker) Subscribe(ctx context.Context, name string, o broker.SubscribeOptions) (broker.Subscription, error) {
	s, err := b.subscribe(ctx, name, o)
	if err != nil {
		return nil, wrap(err, "subscribe to", name)
	}
	return s, nil
}

func (b *Broker) subscribe(ctx context.Context, name string, o broker.SubscribeOptions) (*subscription, error) {
	if o.Prefetch < 0 {
		return nil, fmt.Errorf("%w: prefetch %d", broker.ErrMalformed, o.Prefetch)
	}
	lease := o.Lease
	if lease == 0 {
		lease = b.cfg.Lease
	}
	if lease < minLease {
		return nil, fmt.Errorf("%w: a lease of %v is shorter than %v", broker.ErrMalformed, lease, minLease)
	}
	q, err := b.queue(ctx, name)
	if errors.Is(err, broker.ErrNoQueue) {
		q, err = b.settle(ctx, name, nil)
	}
	if err != nil {
		return nil, err
	}
	b.declared.Store(name, q.bounds)
	want := o.Prefetch
	if want == 0 {
		want = unlimited
	}
	s := &subscription{b: b, q: q, beat: time.Now()}
	s.line = receive.NewLine(&s.mu, s.pop)
	for i := range q.work {
		lv := newLevel(s, i, receive.Share(want, i, len(q.work)))
		info, err := b.ensureConsumer(ctx, q, i, lease)
		if err != nil {
			return nil, err
		}
		lv.waiting, lv.handed, lv.created = info.NumPending, info.Delivered.Consumer, info.Created
		lv.urgent = i < len(q.work)-1
		if s.lease == 0 || info.Config.AckWait < s.lease {
			s.lease = info.Config.AckWait
		}
		s.levels = append(s.levels, lv)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errClosed()
	}
	s.fetch, s.end = context.WithCancel(b.stop)
	s.life, s.release = context.WithCancel(b.stop)
	b.subs[s] = struct{}{}
	for _, lv := range s.levels {
		s.done.Go(lv.run)
	}
	s.done.Go(func() { s.keep(s.life) })
	b.tasks.Go(s.done.Wait)
	return s, nil
}

// Receive implements [broker.Subscription].
func (s *subscription) Receive(ctx context.Context) (broker.Delivery, error) {
	d, err := s.line.Receive(ctx)
	if err != nil {
		return nil, s.receiveError(err)
	}
	return d, nil
}

func (s *subscription) receiveError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return wrap(err, "receive from", s.q.name)
}

// pop takes the most urgent delivery that is held and not lost; s.mu is held. While the server has more urgent messages that
// are on their way, or that the level's part of the prefetch has no room for, less urgent ones wait for them, unless at is set.
func (s *subscription) pop(at bool) *delivery {
	if s.line.Closed() {
		return nil
	}
	for i, lv := range s.levels {
		for d := lv.held.Pop(); d != nil; d = lv.held.Pop() {
			if !d.hold.dead && d.state == open {
				if lv.want == unlimited { // what is held bounds what is asked for, not what is unsettled
					lv.poke()
				}
				return d
			}
		}
		if !at && lv.urgent && lv.waiting > 0 {
			if s.holdsBelow(i) {
				lv.look()
			}
			return nil
		}
	}
	return nil
}

// holdsBelow reports whether less urgent messages are held; s.mu is held.
func (s *subscription) holdsBelow(level int) bool {
	for _, lv := range s.levels[level+1:] {
		if lv.held.Len() > 0 {
			return true
		}
	}
	return false
}

// failed notes that the server lets us have nothing, nil that it does again.
func (s *subscription) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line.Fail(err)
}

// SetPrefetch implements [broker.Resizer]. When it returns nil the server will not send what goes beyond a smaller n.
func (s *subscription) SetPrefetch(ctx context.Context, n int) error {
	n = max(n, 0)
	errs := make([]error, len(s.levels))
	var wg sync.WaitGroup
	for i, lv := range s.levels {
		part := 0
		if n > 0 {
			part = receive.Share(n, i, len(s.levels))
		}
		wg.Go(func() { errs[i] = lv.setWant(ctx, part) })
	}
	wg.Wait()
	return wrap(errors.Join(errs...), "set the prefetch of", s.q.name)
}

// Close implements [broker.Subscription].
func (s *subscription) Close(ctx context.Context) error {
	s.mu.Lock()
	first := s.line.Close(broker.ErrClosed)
	s.mu.Unlock()
	errs := make([]error, len(s.levels))
	var wg sync.WaitGroup
	for i, lv := range s.levels {
		wg.Go(func() { errs[i] = lv.setWant(ctx, 0) })
	}
	wg.Wait()
	s.end()
	if first {
		s.giveBack()
	}
	return wrap(errors.Join(errs...), "close the subscription of", s.q.name)
}

// giveBack returns what nobody has got.
func (s *subscription) giveBack() {
	s.mu.Lock()
	var replies []string
	var until time.Time
	for _, lv := range s.levels {
		for d := lv.held.Pop(); d != nil; d = lv.held.Pop() {
			if d.state != open || d.hold.dead {
				continue
			}
			d.state = settled
			until = s.deadline(d.hold)
			s.leave(d)
			lv.unsettled--
			replies = append(replies, d.reply)
		}
	}
	s.forget()
	s.mu.Unlock()
	for _, r := range replies {
		s.b.outbox.nak(s.q, r, until)
	}
}

// giveUp returns what is unsettled, when the Broker is closed.
func (s *subscription) giveUp() {
	s.mu.Lock()
	var replies []string
	var until time.Time
	for _, h := range s.holds {
		if h.n > 0 {
			until = s.deadline(h)
		}
		for d := h.list; d != nil; d = d.next {
			if d.state == open {
				replies = append(replies, d.reply)
			}
		}
		s.lose(h)
	}
	s.mu.Unlock()
	for _, r := range replies {
		s.b.outbox.nak(s.q, r, until)
	}
}

// loseAll gives up everything, when what it was taken from is not there any more.
func (s *subscription) loseAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holds {
		s.lose(h)
	}
	s.forget()
}

// forget ends the keeper and lets the Broker forget a closed subscription when its last delivery is settled; s.mu is held.
func (s *subscription) forget() {
	if !s.line.Closed() || s.fetch.Err() == nil {
		return
	}
	for _, lv := range s.levels {
		if lv.unsettled > 0 {
			return
		}
	}
	s.release()
	b := s.b
	go func() { // b.mu comes before s.mu
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.subs, s)
	}()
}
