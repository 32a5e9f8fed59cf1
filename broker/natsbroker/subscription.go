package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
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
	waiters []*waiter
	fault   error // why the server lets us have nothing; Receive reports it until it is mended
	closed  bool
	holds   []*hold
	renewed time.Time // when a renewal of all that was held went out that the server has read
	asked   time.Time // when the last renewal went out
	beat    time.Time // when the keeper last ran
	thawed  time.Time // not zero after a freeze: when it may have begun
}

// waiter is a Receive that waits. It gets exactly one answer, unless it leaves the list first.
type waiter struct{ ch chan answer }

type answer struct {
	d   *delivery
	err error
}

// waiters are used again; all of them are empty.
var waiterPool = sync.Pool{New: func() any { return &waiter{ch: make(chan answer, 1)} }}

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
	for i := range q.work {
		lv := newLevel(s, i, share(want, i, len(q.work)))
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

// share is the part of level i of n in a prefetch.
func share(want, i, n int) int {
	if want <= 0 {
		return want
	}
	part := want / n
	if i < want%n {
		part++
	}
	return max(part, 1)
}

// Receive implements [broker.Subscription].
func (s *subscription) Receive(ctx context.Context) (broker.Delivery, error) {
	err := ctx.Err()
	s.mu.Lock()
	if d := s.pop(err != nil); d != nil {
		s.mu.Unlock()
		return d, nil
	}
	switch {
	case s.closed:
		err = broker.ErrClosed
	case s.fault != nil:
		err = s.fault
	}
	if err != nil {
		s.mu.Unlock()
		return nil, s.receiveError(err)
	}
	w := waiterPool.Get().(*waiter)
	s.waiters = append(s.waiters, w)
	s.mu.Unlock()
	var a answer
	select {
	case a = <-w.ch:
	case <-ctx.Done():
		a = s.quit(w, ctx.Err())
	}
	waiterPool.Put(w)
	if a.err != nil {
		return nil, s.receiveError(a.err)
	}
	return a.d, nil
}

func (s *subscription) receiveError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return wrap(err, "receive from", s.q.name)
}

// quit takes w from the list of those who wait and returns its answer: cause, unless it got one at the same moment or something
// is held after all.
func (s *subscription) quit(w *waiter, cause error) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiters, w)
	if i < 0 {
		return <-w.ch // answers are given under s.mu
	}
	s.waiters = slices.Delete(s.waiters, i, i+1)
	if d := s.pop(true); d != nil {
		return answer{d: d}
	}
	return answer{err: cause}
}

// pop takes the most urgent delivery that is held and not lost; s.mu is held. While the server has more urgent messages that
// are on their way, or that the level's part of the prefetch has no room for, less urgent ones wait for them, unless at is set.
func (s *subscription) pop(at bool) *delivery {
	if s.closed {
		return nil
	}
	for i, lv := range s.levels {
		for d := lv.held.pop(); d != nil; d = lv.held.pop() {
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
		if lv.held.len() > 0 {
			return true
		}
	}
	return false
}

// serve answers those who wait with what is held; s.mu is held.
func (s *subscription) serve() {
	for len(s.waiters) > 0 {
		d := s.pop(false)
		if d == nil {
			return
		}
		w := s.waiters[0]
		s.waiters = slices.Delete(s.waiters, 0, 1)
		w.ch <- answer{d: d} // has room
	}
}

// tell answers all that wait; s.mu is held.
func (s *subscription) tell(err error) {
	for _, w := range s.waiters {
		w.ch <- answer{err: err}
	}
	s.waiters = nil
}

// failed notes that the server lets us have nothing, nil that it does again.
func (s *subscription) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = err
	if err != nil {
		s.tell(err)
	}
}

// SetPrefetch implements [broker.Resizer]. When it returns nil the server will not send what goes beyond a smaller n.
func (s *subscription) SetPrefetch(ctx context.Context, n int) error {
	n = max(n, 0)
	errs := make([]error, len(s.levels))
	var wg sync.WaitGroup
	for i, lv := range s.levels {
		part := 0
		if n > 0 {
			part = share(n, i, len(s.levels))
		}
		wg.Go(func() { errs[i] = lv.setWant(ctx, part) })
	}
	wg.Wait()
	return wrap(errors.Join(errs...), "set the prefetch of", s.q.name)
}

// Close implements [broker.Subscription].
func (s *subscription) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.tell(broker.ErrClosed)
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
		for d := lv.held.pop(); d != nil; d = lv.held.pop() {
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
	if !s.closed || s.fetch.Err() == nil {
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

// fifo is a queue that keeps its memory.
type fifo struct {
	items []*delivery
	head  int
}

func (f *fifo) len() int { return len(f.items) - f.head }

func (f *fifo) push(d *delivery) {
	if f.head > 0 && len(f.items) == cap(f.items) {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	f.items = append(f.items, d)
}

func (f *fifo) pop() *delivery {
	if f.head == len(f.items) {
		return nil
	}
	d := f.items[f.head]
	f.items[f.head] = nil
	if f.head++; f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
	return d
}
