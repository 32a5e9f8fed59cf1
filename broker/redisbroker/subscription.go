package redisbroker

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/floor"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// maxClaim limits the messages of one claim. It also limits the messages that a subscription
	// without a prefetch limit holds before Receive returns them.
	maxClaim = 1000
	// maxAcks limits the acknowledgements of one round trip.
	maxAcks = 1000
)

// subscription implements broker.Subscription and broker.Resizer. It has two goroutines: one claims
// messages, one renews the lease. The first ends with Close, the second when no message is held
// after that.
type subscription struct {
	b     *Broker
	q     *queue
	lease time.Duration
	acks  *batcher[*delivery]

	// wakes the claiming goroutine: there may be messages to claim, or the subscription is closed
	wakeFetch  wake.Signal
	receivable wake.Signal   // a message can be received; each receiver passes the signal to the next
	closed     chan struct{} // closed by Close
	idle       chan struct{} // closed when the claiming has ended and all messages were returned

	mu       sync.Mutex
	limit    int // limit of messages held; math.MaxInt: no limit
	owner    *owner
	unread   unread
	bounds   string      // from packBounds, for the next claim
	excess   []*delivery // arrived after the prefetch was reduced or the subscription closed
	drained  bool        // the server delivers new messages without a claim
	wakeups  uint64      // number of notifications so far
	notified bool        // since the last claim: it may claim, whatever is unread
	quiet    bool        // no message arrived for a while: finished claims can be reported
	err      error       // error that Receive returns until a step succeeds
	isClosed bool
	isIdle   bool // idle is closed
}

// owner is the number under which a subscription holds messages, as long as it renews its lease in
// time. The subscription's mutex guards all fields except number and lost.
type owner struct {
	number int64
	lost   chan struct{} // closed when the lease was lost
	gone   bool          // lost is closed
	until  time.Time     // the lease lasts at least until then
	claims int64         // number of claims that returned messages
	hears  bool          // the server has confirmed the owner's channel
	open   []*claim      // claims that the server has not forgotten
	done   int           // number of open claims of which no message is held
	held   map[*delivery]struct{}
}

// claim is a number of messages that an owner received at once. The subscription's mutex guards
// left.
type claim struct {
	owner *owner
	place int64 // its number among the owner's claims
	name  string
	left  int // messages whose end was not reported to the server
}

// alive reports whether the lease certainly lasts at now. Call it with the subscription's mutex
// held.
func (o *owner) alive(now time.Time) bool { return !o.gone && now.Before(o.until) }

// Subscribe implements [broker.Broker]. If the queue does not exist it is created, without
// priority levels. It waits for the server and starts two goroutines, which claim messages and
// renew the lease. Prefetch 0 means no limit, Lease 0 means Config.Lease. Returns ErrMalformed for
// a negative prefetch, or a lease that is negative or shorter than 100 ms. It does so for Bounds of
// a queue that is not fair, and where broker.CheckOptions does. After Close it returns ErrClosed.
// It also returns the error of the server.
//
// The first subscription also starts a check of the server's settings, see checkSettings. Unless
// the server is a cluster, it starts pollLoop too.
func (b *Broker) Subscribe(ctx context.Context, name string, o broker.SubscribeOptions) (broker.Subscription, error) {
	q, err := b.open(name)
	if err != nil {
		return nil, err
	}
	if o.Prefetch < 0 || o.Lease < 0 || o.Lease > 0 && o.Lease < minLease {
		return nil, fmt.Errorf("redis subscribe to %.128q: %w: prefetch %d, lease %v", name, broker.ErrMalformed, o.Prefetch, o.Lease)
	}
	if err := broker.CheckOptions(o); err != nil {
		return nil, wrap(err, "subscribe to", name)
	}
	s := &subscription{
		b: b, q: q, lease: o.Lease, limit: o.Prefetch,
		wakeFetch: wake.New(), receivable: wake.New(),
		closed: make(chan struct{}), idle: make(chan struct{}),
	}
	s.acks = &batcher[*delivery]{b: b, ctx: b.ctx, maxEntries: maxAcks, send: s.sendAcks, resend: s.shouldResendAck, added: wake.New()}
	if s.lease == 0 {
		s.lease = b.cfg.Lease
	}
	if s.limit == 0 {
		s.limit = math.MaxInt
	}
	if s.bounds, err = packBounds(o.Bounds); err != nil {
		return nil, wrap(err, "subscribe to", name)
	}
	own, l, err := s.register(ctx, b.conn.Eval)
	if err != nil {
		return nil, wrap(err, "subscribe to", name)
	}
	s.owner, s.unread = own, newUnread(l, floor.New(o.Floor))
	if s.bounds != "" && !l.fair {
		_ = s.removeOwner(ctx, own) // otherwise its lease ends
		return nil, wrap(broker.NotFair(name, "bounds"), "subscribe to", name)
	}
	if !b.addSubscription(s, floor.New(o.Floor)) {
		_ = s.removeOwner(ctx, own) // otherwise its lease ends
		return nil, fmt.Errorf("redis subscribe to %.128q: %w", name, errClosed)
	}
	b.checkSettings()
	if !b.conn.Clustered() {
		b.tending.Do(func() { b.start(b.pollLoop) })
	}
	return s, nil
}

// addSubscription adds s to the Broker's subscriptions, listens on its channel, and starts its two
// goroutines. share decides about the levels of claims. It does not wait. It returns false if the
// Broker is closed: the caller must remove the owner on the server then. It takes b.mu.
func (b *Broker) addSubscription(s *subscription, share floor.Floor) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.subs[s] = struct{}{}
	b.mu.Unlock()
	b.listenTo(s, s.owner)
	return b.start(func() { s.fetch(share) }) && b.start(s.keepLease)
}

// channelConfirmed records that the server has confirmed the subscription to channel.
// Notifications before that are lost, so it wakes the claiming goroutine. A channel of an earlier
// owner is ignored. It takes s.mu.
func (s *subscription) channelConfirmed(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if channel == s.q.names.channel(s.owner.number) {
		s.owner.hears = true
		s.wakeToClaim()
	}
}

// wakeToClaim wakes the claiming goroutine to claim messages, even if the server delivers by
// itself, or most places of the prefetch have unread messages: a notification that it does not use
// reaches no other consumer. It also counts a notification. Call it with s.mu held.
func (s *subscription) wakeToClaim() {
	s.notified = true
	s.wakeToRefill()
}

// wakeToRefill does the same as wakeToClaim, but only if few messages are unread. Call it with s.mu
// held.
func (s *subscription) wakeToRefill() {
	s.drained = false
	s.wakeups++
	s.wakeFetcher()
}

// wakeFetcher wakes the claiming goroutine to check for work, or keepLease if the claiming has
// ended. It does not block.
func (s *subscription) wakeFetcher() { s.wakeFetch.Notify() }

// Receive implements [broker.Subscription]. It blocks until a message is held, ctx ends, or the
// subscription is closed. It returns the most urgent message, of a fair queue that of the next
// turn. A held message is returned even if ctx has ended. Returns ctx's error if ctx ends first,
// ErrClosed after Close, and ErrAccess while the server refuses claims.
func (s *subscription) Receive(ctx context.Context) (broker.Delivery, error) {
	for {
		d, err := s.takeReady()
		if d != nil || err != nil {
			return d, err
		}
		select {
		case <-s.receivable:
		case <-s.closed:
		case <-ctx.Done():
			if d, err := s.takeReady(); d != nil || err != nil {
				return d, err
			}
			return nil, ctx.Err()
		}
	}
}

// takeReady removes and returns the most urgent ready message. Without one it returns the error
// that prevents claims, or nil and nil. After Close it returns ErrClosed even if messages are
// ready.
//
// It wakes another waiting Receive that can return something, and the fetcher if there is room
// for more messages. It takes s.mu and does not wait for messages.
func (s *subscription) takeReady() (broker.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return nil, fmt.Errorf("redis receive from %.128q: %w: the subscription is closed", s.q.name, broker.ErrClosed)
	}
	if d := s.unread.next(); d != nil {
		if s.unread.n > 0 {
			s.receivable.Notify() // for another waiting call of Receive
		}
		if s.claimable() > 0 {
			s.wakeFetcher()
		}
		return d, nil
	}
	if s.err != nil {
		s.receivable.Notify()
		return nil, s.err
	}
	return nil, nil //nolint:nilnil // nothing yet
}

// claimable returns how many messages to claim now. Call it with s.mu held. It returns 0 in these
// cases:
//   - the subscription is closed
//   - the server delivers without claims
//   - all places of the prefetch are taken
//   - enough messages are ready
//   - few places are free compared with the ready messages, and no notification came
func (s *subscription) claimable() int {
	free := s.limit - len(s.owner.held)
	if s.isClosed || s.drained || free <= 0 || s.unread.n >= maxClaim/2 {
		return 0
	}
	free = min(free, maxClaim-s.unread.n)
	if s.unread.n > free && !s.notified {
		return 0
	}
	return free
}

// removeHeld removes a settled delivery from the held ones. Call it with s.mu held.
func (s *subscription) removeHeld(d *delivery) { delete(d.claim.owner.held, d) }

// countEnded records that the server knows that the message of d is settled. Further calls for d do
// nothing. When this is true of all messages of a claim, the claim counts as done, and a later
// claim reports it as finished. Call it with s.mu held.
func (s *subscription) countEnded(d *delivery) {
	if !d.answered {
		d.answered = true
		if d.claim.left--; d.claim.left == 0 {
			d.claim.owner.done++
		}
	}
}

// afterSettle wakes the claiming goroutine if a settlement has made a claim possible or was the
// last of a closed subscription. It takes s.mu.
func (s *subscription) afterSettle() {
	s.mu.Lock()
	prod := s.claimable() > 0 || s.isClosed && len(s.owner.held) == 0
	s.mu.Unlock()
	if prod {
		s.wakeFetcher()
	}
}

// SetPrefetch implements [broker.Resizer]. 0 stops the claiming. It wakes the claiming goroutine.
// For a smaller n it then blocks until the server has stopped to deliver without claims, or ctx
// ends. Messages that still arrive beyond n go back to the queue. It takes s.mu, but does not hold
// it while it waits.
//
// Returns ErrMalformed if n is negative, and ErrClosed after Close: then the limit stays. It also
// returns the error of that wait, of the server or because ctx ended: then the new limit applies.
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
	s.wakeToClaim()
	s.mu.Unlock()
	if less {
		if _, err := s.stopHandover(ctx, own); err != nil {
			return wrap(err, "prefetch of", s.q.name)
		}
		s.mu.Lock()
		s.wakeToClaim() // the server may deliver again, with the new number
		s.mu.Unlock()
	}
	return nil
}

// Close implements [broker.Subscription]. Waiting calls of Receive return ErrClosed. It blocks
// until the messages that Receive has not returned are back in the queue and all acknowledgements
// are sent. Returns ErrUnavailable if ctx ends first; that work continues nevertheless. Deliveries
// that Receive has returned can still be settled. It takes s.mu, but does not hold it while it
// waits.
func (s *subscription) Close(ctx context.Context) error {
	s.stopReceiving()
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

// stopReceiving makes Receive return ErrClosed and ends the claiming. It does not wait. It takes
// s.mu.
func (s *subscription) stopReceiving() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isClosed {
		s.isClosed = true
		close(s.closed)
	}
	s.wakeFetcher()
}

// closeWithBroker closes a subscription of a Broker that closes. It marks all held messages as lost
// and returns them to the queue, also those that Receive has returned. It waits for the server
// until ctx ends. If Close fails, or the lease was lost before, it returns none of the messages
// that Receive has returned. Messages that were not returned go back when the lease ends. It takes
// s.mu, but does not hold it while it waits.
func (s *subscription) closeWithBroker(ctx context.Context) error {
	err := s.Close(ctx)
	s.mu.Lock()
	own := s.owner
	held := make([]*delivery, 0, len(own.held))
	for d := range own.held {
		held = append(held, d)
	}
	alive := !own.gone
	s.loseOwner(own)
	s.mu.Unlock()
	if alive && err == nil {
		err = s.leave(ctx, own, held)
	}
	s.wakeFetcher()
	return err
}
