package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/lanes"
	"github.com/swarmiji/swarmiji/internal/receive"
)

// unlimited is a prefetch without a limit. In the port that is 0, but 0 means "stop" in
// SetPrefetch.
const unlimited = -1

// subscription consumes all levels and lanes of a queue.
type subscription struct {
	b      *Broker
	q      *queue
	lease  time.Duration           // of the consumers on the server
	levels []*level                // the most urgent first, and lane by lane
	held   *lanes.Levels[delivery] // not returned by Receive; guarded by mu
	done   sync.WaitGroup

	fetch   context.Context // ends with Close: no further messages are fetched
	end     context.CancelFunc
	life    context.Context // ends when the last delivery is settled
	release context.CancelFunc

	mu          sync.Mutex
	line        *receive.Line[delivery] // callers of Receive; it fails while the server refuses access
	groups      []*leaseGroup
	renewed     time.Time // when the last renewal was sent that the server has answered
	renewSentAt time.Time // when the last renewal was sent
	lastCheck   time.Time // when keepLeases last ran
	frozenSince time.Time // after a freeze of the process: when it may have begun; otherwise zero
}

// Subscribe implements [broker.Broker]. It creates the queue and its consumers if they do not
// exist, and returns when they exist. The levels share Prefetch equally. The remainder goes to the
// most urgent levels, and each level gets at least 1. Of a fair queue each lane has the whole part
// of its level, so that one lane can keep all workers busy. Returns ErrMalformed for a name that is
// not valid, a negative prefetch or a lease below 100 ms, and ErrClosed after Close.
//
// The lease belongs to the server's consumer, which all processes share. The first subscription
// sets it. A subscription with a longer lease extends it for all. A shorter one takes effect only
// if no other process consumes. So each process that consumes renews its messages in time.
func (b *Broker) Subscribe(ctx context.Context, name string, o broker.SubscribeOptions) (broker.Subscription, error) {
	s, err := b.subscribe(ctx, name, o)
	if err != nil {
		return nil, wrap(err, "subscribe to", name)
	}
	return s, nil
}

// subscribe creates the queue and its consumers if they do not exist, and waits for the server. It
// notes in b.declared that this Broker uses the queue. Then it starts the goroutines of the
// subscription: one for each level, and one for the leases. The lease of the subscription is the
// shortest lease of its consumers.
//
// Returns ErrMalformed for a negative prefetch or a lease below 100 ms, ErrClosed after Close, and
// the errors of ensureConsumer. It takes b.mu, but not while it waits.
func (b *Broker) subscribe(ctx context.Context, name string, o broker.SubscribeOptions) (*subscription, error) {
	if o.Prefetch < 0 {
		return nil, fmt.Errorf("%w: prefetch %d", broker.ErrMalformed, o.Prefetch)
	}
	if err := broker.RefuseBounds(name, o); err != nil {
		return nil, err
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
		q, err = b.writeRecord(ctx, broker.Queue{Name: name})
	}
	if err != nil {
		return nil, err
	}
	b.declared.Store(name, q.described())
	want := o.Prefetch
	if want == 0 {
		want = unlimited
	}
	s := &subscription{b: b, q: q, lastCheck: time.Now()}
	s.line = receive.NewLine(&s.mu, s.pop)
	width := q.width()
	n := len(q.work) / width
	s.held = lanes.NewLevels[delivery](n, q.fair, o.Floor)
	for i := range q.work {
		rank := i / width
		lv := newLevel(s, i, receive.Share(want, rank, n), s.held.Level(rank).Lane(i%width))
		info, err := b.ensureConsumer(ctx, q, i, lease)
		if err != nil {
			return nil, err
		}
		lv.pending, lv.delivered, lv.created = info.NumPending, info.Delivered.Consumer, info.Created
		lv.rank, lv.awaited = rank, rank < n-1 || n > 1 && o.Floor > 0
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
	s.done.Go(func() { s.keepLeases(s.life) })
	b.tasks.Go(s.done.Wait)
	return s, nil
}

// Receive implements [broker.Subscription]. It blocks until a delivery is held, ctx ends, the
// subscription is closed, or the server refuses access. A held delivery is returned even if ctx has
// ended, but not after Close. A lost connection does not end the wait. Returns ctx's error,
// ErrClosed or ErrAccess. Returns ErrNoQueue or ErrMalformed while the queue's record is missing or
// damaged.
func (s *subscription) Receive(ctx context.Context) (broker.Delivery, error) {
	d, err := s.line.Receive(ctx)
	if err != nil {
		return nil, s.receiveError(err)
	}
	return d, nil
}

// receiveError returns the end of a ctx unchanged and any other error with the queue in its text.
func (s *subscription) receiveError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return wrap(err, "receive from", s.q.name)
}

// pop removes and returns the next delivery that this process holds and whose lease is not lost:
// the most urgent one, or by the floor one of another level. It returns nil without a delivery, and
// after Close. Call it with s.mu held.
//
// If now is false, pop also returns nil while the server may have messages of a level that comes
// first, see awaitPending. Other deliveries stay held meanwhile, and pop asks the server about that
// level in the background. If now is true, pop does not wait for such messages.
func (s *subscription) pop(now bool) *delivery {
	if s.line.Closed() {
		return nil
	}
	d := s.held.Pop((*delivery).isUsable, func(rank int) bool { return !now && s.awaitPending(rank) })
	if d != nil && d.level.want == unlimited { // held messages limit the requests, not unsettled ones
		d.level.wakeIfRoom()
	}
	return d
}

// awaitPending reports whether the server may have messages of a priority level, for which other
// levels wait: they have not arrived, or that level's prefetch is used up. More urgent messages
// that are held do not wait for a level whose prefetch is used up.
//
// If messages are held, it asks the server in the background. Without a floor it returns false for
// the least urgent level. Call it with s.mu held.
func (s *subscription) awaitPending(rank int) (wait bool) {
	width := s.q.width()
	for _, lv := range s.levels[rank*width : (rank+1)*width] {
		if !lv.awaited || lv.pending == 0 || !lv.hasRoom() && s.holds(0, rank) {
			continue
		}
		wait = true
		if s.holds(0, s.held.Len()) {
			lv.askPending()
		}
	}
	return wait
}

// holds reports whether this process holds messages of the priority levels from first to before
// end. Call it with s.mu held.
func (s *subscription) holds(first, end int) bool {
	for rank := first; rank < end; rank++ {
		if s.held.Level(rank).Len() > 0 {
			return true
		}
	}
	return false
}

// setFault makes Receive return err while no delivery is held, until a level works again. Waiting
// calls return it at once. It takes s.mu.
func (s *subscription) setFault(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line.Fail(err)
}

// SetPrefetch implements [broker.Resizer]. The levels share n as at Subscribe, and each is set on
// its own goroutine. It blocks until the server no longer sends messages beyond a smaller n. If
// ctx ends first it returns ErrUnavailable, and n is valid nevertheless. A negative n counts as 0.
func (s *subscription) SetPrefetch(ctx context.Context, n int) error {
	n = max(n, 0)
	errs := make([]error, len(s.levels))
	var wg sync.WaitGroup
	for i, lv := range s.levels {
		part := 0
		if n > 0 {
			part = receive.Share(n, lv.rank, s.held.Len())
		}
		wg.Go(func() { errs[i] = lv.setPrefetch(ctx, part) })
	}
	wg.Wait()
	return wrap(errors.Join(errs...), "set the prefetch of", s.q.name)
}

// Divided implements [broker.Divider]: each level and each lane has its own prefetch.
func (s *subscription) Divided() bool { return len(s.levels) > 1 }

// Close implements [broker.Subscription]. Receive returns ErrClosed from now on. Close withdraws
// the requests for messages and returns the messages that Receive has not returned to the queue.
// Other deliveries can still be settled while their lease lasts. It waits for the server until ctx
// ends; the subscription is closed even after an error. It takes s.mu, but not while it waits.
// Returns ErrUnavailable if ctx ends first.
func (s *subscription) Close(ctx context.Context) error {
	s.mu.Lock()
	first := s.line.Close(broker.ErrClosed)
	s.mu.Unlock()
	errs := make([]error, len(s.levels))
	var wg sync.WaitGroup
	for i, lv := range s.levels {
		wg.Go(func() { errs[i] = lv.setPrefetch(ctx, 0) })
	}
	wg.Wait()
	s.end()
	if first {
		s.returnUnreceived()
	}
	return wrap(errors.Join(errs...), "close the subscription of", s.q.name)
}

// returnUnreceived settles the messages that Receive has not returned: it sends them back to the
// queue. If no other delivery is unsettled, the subscription ends, see endIfDone. It does not wait
// for the server. It takes s.mu.
func (s *subscription) returnUnreceived() {
	s.mu.Lock()
	var all []returned
	for _, lv := range s.levels {
		for d := lv.held.Pop(); d != nil; d = lv.held.Pop() {
			if d.state != open || d.group.isLost {
				continue
			}
			d.state = settled
			all = append(all, returned{d.reply, s.deadline(d.group)})
			s.removeHeld(d)
			lv.unsettled--
		}
	}
	s.endIfDone()
	s.mu.Unlock()
	s.nakAll(all)
}

// returned is a delivery that goes back to its queue, until the end of its lease. Later the server
// may have given the message to another consumer, from which such an answer would remove it.
type returned struct {
	reply string
	until time.Time
}

// nakAll returns deliveries to the queue. It does not wait for the server.
func (s *subscription) nakAll(all []returned) {
	for _, r := range all {
		s.b.outbox.nak(s.q, r.reply, r.until)
	}
}

// returnUnsettled marks all deliveries as lost and returns the unsettled messages to the queue,
// for a Broker that closes. Deliveries whose settlement is in progress are not returned. It does
// not wait for the server. It takes s.mu.
func (s *subscription) returnUnsettled() {
	s.mu.Lock()
	var all []returned
	for _, h := range s.groups {
		for d := h.list; d != nil; d = d.next {
			if d.state == open {
				all = append(all, returned{d.reply, s.deadline(h)})
			}
		}
		s.loseGroup(h)
	}
	s.mu.Unlock()
	s.nakAll(all)
}

// loseAll marks all deliveries as lost, because their stream no longer exists. A closed
// subscription ends then, see endIfDone. It takes s.mu.
func (s *subscription) loseAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.groups {
		s.loseGroup(h)
	}
	s.endIfDone()
}

// endIfDone ends a closed subscription when its last delivery is settled: it ends keepLeases. A
// goroutine, which takes b.mu, removes the subscription from the Broker. It does nothing while a
// delivery is unsettled. Call it with s.mu held.
func (s *subscription) endIfDone() {
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
	go func() { // b.mu is locked before s.mu
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.subs, s)
	}()
}
