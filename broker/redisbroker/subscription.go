package redisbroker

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// maxClaim is how many messages one claim takes at most, and so how many a subscription without a limit holds that nobody
	// has received.
	maxClaim = 1000
	// maxAcks is how many acknowledgements one trip takes.
	maxAcks = 1000
)

// subscription implements broker.Subscription and broker.Resizer. Two goroutines serve it: one claims messages, one renews the
// lease. The first ends with Close; the second after that, when nothing is held any more.
type subscription struct {
	b     *Broker
	q     *queue
	lease time.Duration
	acks  *batcher[*delivery]

	kick   wake.Signal   // there may be something to claim, or it is closed
	news   wake.Signal   // there is something to receive; passed on by who takes it
	closed chan struct{} // closed by Close
	idle   chan struct{} // closed when the claiming has ended and all was given back

	mu       sync.Mutex
	limit    int // of messages held; math.MaxInt: none
	owner    *owner
	levels   *levels
	ready    [][]*delivery // held and not received, by level
	unread   int           // how many these are
	excess   []*delivery   // handed over after they were not wanted any more
	drained  bool          // the server hands over what comes, so that there is nothing to claim
	words    uint64        // of more, that have come
	quiet    bool          // nothing came for a while: there is time to tell of all finished claims
	err      error         // why Receive gives nothing, while that lasts
	isClosed bool
	isIdle   bool
}

// owner is the number under which a subscription holds messages, as long as it renews its lease in time. Its fields but number
// and lost are guarded by the subscription's mutex.
type owner struct {
	number int64
	lost   chan struct{} // closed when the lease was lost
	gone   bool          // lost is closed
	until  time.Time     // the lease lives at least that long
	claims int64         // that gave something
	hears  bool          // the server has confirmed the owner's channel
	open   []*claim      // of which the server believes that something is held
	done   int           // of these, nothing is held of
	held   map[*delivery]struct{}
}

// claim is what was handed to an owner at once. Left is guarded by the subscription's mutex.
type claim struct {
	owner *owner
	place int64 // among the owner's claims
	name  string
	left  int // messages that the server has not been told the end of
}

// alive reports whether the lease lives for sure; the subscription's mutex is held.
func (o *owner) alive(now time.Time) bool { return !o.gone && now.Before(o.until) }

// Subscribe implements [broker.Broker]. The queue is created, without priority levels, if it does not exist.
func (b *Broker) Subscribe(ctx context.Context, name string, o broker.SubscribeOptions) (broker.Subscription, error) {
	q, err := b.open(name)
	if err != nil {
		return nil, err
	}
	if o.Prefetch < 0 || o.Lease < 0 || o.Lease > 0 && o.Lease < minLease {
		return nil, fmt.Errorf("redis subscribe to %.128q: %w: prefetch %d, lease %v", name, broker.ErrMalformed, o.Prefetch, o.Lease)
	}
	s := &subscription{
		b: b, q: q, lease: o.Lease, limit: o.Prefetch,
		kick: wake.New(), news: wake.New(),
		closed: make(chan struct{}), idle: make(chan struct{}),
	}
	s.acks = &batcher[*delivery]{b: b, ctx: b.ctx, most: maxAcks, send: s.sendAcks, again: s.ackAgain, more: wake.New()}
	if s.lease == 0 {
		s.lease = b.cfg.Lease
	}
	if s.limit == 0 {
		s.limit = math.MaxInt
	}
	own, l, err := s.register(ctx, b.conn.Eval)
	if err != nil {
		return nil, wrap(err, "subscribe to", name)
	}
	s.owner, s.levels = own, l
	s.ready = make([][]*delivery, max(1, len(l.bounds)))
	if !b.enter(s) {
		_ = s.leave(ctx, own) // or its lease ends
		return nil, fmt.Errorf("redis subscribe to %.128q: %w", name, errClosed)
	}
	b.lookAtSettings()
	if !b.conn.Clustered() {
		b.tending.Do(func() { b.start(b.tend) })
	}
	return s, nil
}

// enter makes a subscription known and starts its goroutines; false if the Broker is closed.
func (b *Broker) enter(s *subscription) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.subs[s] = struct{}{}
	b.mu.Unlock()
	b.hear(s, s.owner)
	return b.start(s.fetch) && b.start(s.keep)
}

// hears notes that the server has confirmed the owner's channel. What was told on it before is lost.
func (s *subscription) hears(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if channel == s.q.names.channel(s.owner.number) {
		s.owner.hears = true
		s.wake()
	}
}

// wake has the claiming goroutine look whether there is something in the queue; s.mu is held.
func (s *subscription) wake() {
	s.drained = false
	s.words++
	s.prod()
}

// prod has the claiming goroutine look what there is to do.
func (s *subscription) prod() { s.kick.Notify() }

// Receive implements [broker.Subscription].
func (s *subscription) Receive(ctx context.Context) (broker.Delivery, error) {
	for {
		d, err := s.take()
		if d != nil || err != nil {
			return d, err
		}
		select {
		case <-s.news:
		case <-s.closed:
		case <-ctx.Done():
			if d, err := s.take(); d != nil || err != nil {
				return d, err
			}
			return nil, ctx.Err()
		}
	}
}

// take returns the most urgent message that is held and was not received, or why there will be none.
func (s *subscription) take() (broker.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return nil, fmt.Errorf("redis receive from %.128q: %w: the subscription is closed", s.q.name, broker.ErrClosed)
	}
	for level, ds := range s.ready {
		if len(ds) == 0 {
			continue
		}
		d := ds[0]
		ds[0] = nil
		s.ready[level] = ds[1:]
		if s.unread--; s.unread > 0 {
			s.news.Notify() // for another that waits
		}
		if s.wants() > 0 {
			s.prod()
		}
		return d, nil
	}
	if s.err != nil {
		s.news.Notify()
		return nil, s.err
	}
	return nil, nil //nolint:nilnil // nothing yet
}

// wants returns how many messages to claim now: none, rather than a few, while there is enough to do. s.mu is held.
func (s *subscription) wants() int {
	free := s.limit - len(s.owner.held)
	if s.isClosed || s.drained || free <= 0 || s.unread >= maxClaim/2 {
		return 0
	}
	free = min(free, maxClaim-s.unread)
	if s.unread > free {
		return 0
	}
	return free
}

// drop forgets a delivery that is settled; s.mu is held.
func (s *subscription) drop(d *delivery) { delete(d.claim.owner.held, d) }

// finish notes that the server was told the end of a message; s.mu is held. When that is so of all messages of a claim, the
// server is told with the next claim to forget it.
func (s *subscription) finish(d *delivery) {
	if !d.told {
		d.told = true
		if d.claim.left--; d.claim.left == 0 {
			d.claim.owner.done++
		}
	}
}

// after looks what a settlement has made possible.
func (s *subscription) after() {
	s.mu.Lock()
	prod := s.wants() > 0 || s.isClosed && len(s.owner.held) == 0
	s.mu.Unlock()
	if prod {
		s.prod()
	}
}

// SetPrefetch implements [broker.Resizer]. For a smaller n it waits until the server has heard that it is to hand over nothing
// more by itself, or ctx ends: what comes all the same while n is 0 goes back.
func (s *subscription) SetPrefetch(ctx context.Context, n int) error {
	if n < 0 {
		return fmt.Errorf("redis prefetch of %.128q: %w: %d", s.q.name, broker.ErrMalformed, n)
	}
	s.mu.Lock()
	own, less := s.owner, n < s.limit
	if s.isClosed {
		s.mu.Unlock()
		return fmt.Errorf("redis prefetch of %.128q: %w: the subscription is closed", s.q.name, broker.ErrClosed)
	}
	s.limit = n
	s.wake()
	s.mu.Unlock()
	if less {
		if _, err := s.mute(ctx, own); err != nil {
			return wrap(err, "prefetch of", s.q.name)
		}
		s.mu.Lock()
		s.wake() // with the new number it may wait again
		s.mu.Unlock()
	}
	return nil
}

// Close implements [broker.Subscription].
func (s *subscription) Close(ctx context.Context) error {
	s.stop()
	select {
	case <-s.idle:
	case <-ctx.Done():
		return fmt.Errorf("redis close of a subscription to %.128q: %w: %w", s.q.name, broker.ErrUnavailable, ctx.Err())
	}
	if err := s.acks.flush(ctx); err != nil {
		return fmt.Errorf("redis close of a subscription to %.128q: %w: %w", s.q.name, broker.ErrUnavailable, err)
	}
	return nil
}

// stop ends the receiving and the claiming.
func (s *subscription) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isClosed {
		s.isClosed = true
		close(s.closed)
	}
	s.prod()
}

// shut is Close of a subscription whose Broker closes: what was handed out goes back as well.
func (s *subscription) shut(ctx context.Context) error {
	err := s.Close(ctx)
	s.mu.Lock()
	own := s.owner
	held := make([]*delivery, 0, len(own.held))
	for d := range own.held {
		held = append(held, d)
	}
	alive := !own.gone
	s.lose(own)
	s.mu.Unlock()
	if alive && err == nil {
		err = s.giveBack(ctx, held, true)
		if err == nil {
			err = s.leave(ctx, own)
		}
	}
	s.prod()
	return err
}
