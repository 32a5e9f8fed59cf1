package sqlbroker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// maxClaim limits the messages of one claim. It also limits the messages that a subscription
// without a prefetch limit holds before Receive returns them.
const maxClaim = 1000

// subscription implements broker.Subscription, broker.Resizer and broker.Buffer. It has two
// goroutines: one claims messages, one renews their leases. The first ends with Close, the second
// when no message is held after that.
type subscription struct {
	b       *Broker
	q       *queue
	lease   time.Duration
	settles *sqlconn.Batcher[settlement]
	watcher *sqlconn.Watcher

	wakeFetch  wake.Signal // there may be room for messages, or the subscription is closed
	wakeLease  wake.Signal // the last held message of a closed subscription was settled
	receivable wake.Signal // a message can be received; each receiver passes the signal to the next
	closed     chan struct{}
	idle       chan struct{} // closed when the claiming has ended and all messages were returned
	renewing   chan struct{} // capacity 1: held during a renewal

	mu       sync.Mutex
	limit    int                    // limit of messages held; math.MaxInt: no limit
	held     map[*delivery]struct{} // not settled and not lost, whether or not received
	unread   unreceived             // held and not received
	excess   []*delivery            // arrived above the prefetch or after Close
	drained  bool                   // the queue had fewer messages than the last claim wanted
	err      error                  // error that Receive returns until a claim succeeds
	durable  time.Time              // claims answered before are on PostgreSQL's disk
	isClosed bool
	isIdle   bool // idle is closed
}

// Subscribe implements [broker.Broker]. If the queue does not exist it is created, without priority
// levels. It waits for the database and starts two goroutines, which claim messages and renew their
// leases. Prefetch 0 means no limit, Lease 0 means Config.Lease. It takes b.mu.
//
// Returns ErrMalformed for an invalid name, a negative prefetch, or a lease that is negative or
// shorter than 100 ms. Returns ErrClosed after Close, and errors of the database.
func (b *Broker) Subscribe(ctx context.Context, name string, o broker.SubscribeOptions) (broker.Subscription, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if o.Prefetch < 0 || o.Lease < 0 || o.Lease > 0 && o.Lease < minLease {
		return nil, fmt.Errorf("sql subscribe to %.128q: %w: prefetch %d, lease %v", name, broker.ErrMalformed, o.Prefetch, o.Lease)
	}
	if err := broker.RefuseBounds(name, o); err != nil {
		return nil, wrap(err, "subscribe to", name)
	}
	q, err := b.ensure(ctx, name, "", false)
	if err != nil {
		return nil, wrap(err, "subscribe to", name)
	}
	s := &subscription{
		b: b, q: q, lease: o.Lease, limit: o.Prefetch,
		wakeFetch: wake.New(), wakeLease: wake.New(), receivable: wake.New(),
		closed: make(chan struct{}), idle: make(chan struct{}), renewing: make(chan struct{}, 1),
		held: make(map[*delivery]struct{}), unread: newUnreceived(q),
	}
	s.settles = &sqlconn.Batcher[settlement]{
		Owner: b.owner(), Send: s.settle, Kind: s.transaction, Size: settlementSize, Resend: s.shouldResend,
	}
	if s.lease == 0 {
		s.lease = b.cfg.Lease
	}
	if s.limit == 0 {
		s.limit = math.MaxInt
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, fmt.Errorf("sql subscribe to %.128q: %w", name, errClosed)
	}
	b.subs[s] = struct{}{}
	s.watcher = b.conn.Watch(0, q.topic)
	b.mu.Unlock()
	b.start(s.fetch)
	b.start(s.keepLease)
	return s, nil
}

// Receive implements [broker.Subscription]. It blocks until a message is held, ctx ends, or the
// subscription is closed, and returns the most urgent message. A held message is returned even if
// ctx has ended. It takes s.mu, but does not hold it while it waits. Returns ctx's error, ErrClosed
// after Close, and ErrAccess while the database refuses claims.
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
// It wakes another waiting Receive that can return something, and the fetcher if there is room for
// more messages. It takes s.mu and does not wait for messages.
func (s *subscription) takeReady() (broker.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return nil, fmt.Errorf("sql receive from %.128q: %w: the subscription is closed", s.q.name, broker.ErrClosed)
	}
	if d := s.unread.take(); d != nil {
		if s.unread.n > 0 {
			s.receivable.Notify() // for another waiting call of Receive
		}
		if s.claimable() > 0 {
			s.wakeFetch.Notify()
		}
		return d, nil
	}
	if s.err != nil {
		s.receivable.Notify()
		return nil, s.err
	}
	return nil, nil //nolint:nilnil // nothing yet
}

// Buffered implements [broker.Buffer]. It returns the messages that are ready for Receive, the most
// urgent level first. They are not copied. It takes s.mu.
func (s *subscription) Buffered() []*broker.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*broker.Message, 0, s.unread.n)
	for _, d := range s.unread.all() {
		all = append(all, &d.message)
	}
	return all
}

// claimable returns how many messages to claim now. Call it with s.mu held. It returns 0 in these
// cases:
//   - the subscription is closed
//   - the queue had no more messages, and no notification came since then
//   - all places of the prefetch are taken
//   - enough messages are ready
//   - few places are free compared with the ready messages
func (s *subscription) claimable() int {
	free := s.limit - len(s.held)
	if s.isClosed || s.drained || free <= 0 || s.unread.n >= maxClaim/2 {
		return 0
	}
	free = min(free, maxClaim-s.unread.n)
	if s.unread.n > free {
		return 0
	}
	return free
}

// SetPrefetch implements [broker.Resizer]. 0 stops the claiming. Messages of a claim that is in
// progress then go back to the queue. It takes s.mu and does not wait. Returns ErrMalformed if n is
// negative, ErrClosed after Close.
func (s *subscription) SetPrefetch(_ context.Context, n int) error {
	if n < 0 {
		return fmt.Errorf("sql prefetch of %.128q: %w: %d", s.q.name, broker.ErrMalformed, n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return fmt.Errorf("sql prefetch of %.128q: %w: the subscription is closed", s.q.name, broker.ErrClosed)
	}
	s.limit = n
	s.drained = false
	s.wakeFetch.Notify()
	return nil
}

// Close implements [broker.Subscription]. Waiting calls of Receive return ErrClosed. It blocks
// until the messages that Receive has not returned are back in the queue and all settlements are
// sent. Returns ErrUnavailable if ctx ends first; that work continues nevertheless. Deliveries that
// Receive has returned can still be settled. It takes s.mu, but does not hold it while it waits.
func (s *subscription) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.isClosed {
		s.isClosed = true
		close(s.closed)
	}
	s.mu.Unlock()
	select {
	case <-s.idle:
	case <-ctx.Done():
		return fmt.Errorf("sql close of a subscription to %.128q: %w: %w", s.q.name, broker.ErrUnavailable, ctx.Err())
	}
	if err := s.settles.Flush(ctx); err != nil {
		return fmt.Errorf("sql close of a subscription to %.128q: %w: %w", s.q.name, broker.ErrUnavailable, err)
	}
	return nil
}

// closeWithBroker closes a subscription of a Broker that closes. It marks all held messages as lost
// and returns them to the queue, also those that Receive has returned. It waits for the database
// until ctx ends. Returns the errors of Close and giveBack; the messages that were not returned
// then go back when their leases end. A message whose transaction of AckTx may be open goes back
// then, too. It takes s.mu, but does not hold it while it waits.
func (s *subscription) closeWithBroker(ctx context.Context) error {
	err := s.Close(ctx)
	s.mu.Lock()
	held := make([]*delivery, 0, len(s.held))
	for d := range s.held {
		if !d.inTx { // otherwise the others would wait for the transaction that has locked it
			held = append(held, d)
		}
		s.lose(d)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.giveBack(ctx, held, 0)
}

// lose marks a held delivery as lost: it closes its Lost channel, no longer holds it, and drops it
// if Receive has not returned it. It wakes both goroutines of the subscription. A second call does
// nothing. Call it with s.mu held.
func (s *subscription) lose(d *delivery) {
	if d.leaseLost {
		return
	}
	d.leaseLost = true
	close(d.lost)
	delete(s.held, d)
	s.unread.remove(d)
	s.wakeFetch.Notify()
	s.wakeLease.Notify()
}

// refund gives the turn of d back to its key, in a fair queue: d went back to the queue unstarted.
func (s *subscription) refund(d *delivery) {
	if s.q.turns != nil {
		s.q.turns.refund(levelKey{int64(d.level), d.message.Key})
	}
}

// giveBack returns the messages ds to their places in the queue, subtracts uncounted from their
// deliveries, and notifies the consumers. A message that is no longer held is skipped. It waits for
// the database, up to maxClaim messages at a time, and repeats a call of unknown outcome until ctx
// or the Broker ends. Returns the first error; the messages before are returned then.
func (s *subscription) giveBack(ctx context.Context, ds []*delivery, uncounted int64) error {
	for part := range slices.Chunk(ds, maxClaim) {
		rows := make([][]any, len(part))
		for i, d := range part {
			rows[i] = append(d.key(), int64(0), uncounted)
		}
		release := func() error {
			return s.b.update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
				tx.Notify(s.q.topic)
				_, err := s.b.each(ctx, tx, s.q.text.release, releaseColumns(), rows)
				return err
			})
		}
		err := release()
		// After a lost answer the statement is repeated: the tokens make it harmless.
		for attempt := 0; errors.Is(err, sqlconn.ErrIndeterminate) && s.b.pause(ctx, attempt); attempt++ {
			err = release()
		}
		if err != nil {
			return wrap(err, "return messages to", s.q.name)
		}
	}
	return nil
}
