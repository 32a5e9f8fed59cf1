package deferrals

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

const (
	defaultPrefetch = 256
	defaultLease    = 30 * time.Second
	poll            = 5 * time.Second // a look at least this often; words and known times come sooner
	gap             = 2 * time.Millisecond
	callTimeout     = 10 * time.Second
	purgeEvery      = time.Minute
)

// subscription claims deferrals in the calls of Receive, and renews their leases in a goroutine.
type subscription struct {
	s        *Store
	prefetch int
	lease    time.Duration
	wake     chan struct{}
	closed   chan struct{}
	renewer  sync.WaitGroup
	unwatch  func()
	turn     chan struct{} // who holds its token claims

	mu     sync.Mutex
	queues []string
	held   map[*delivery]struct{} // claimed and not settled
	ready  []*delivery            // of those: not handed out
	again  time.Time              // no look before
	purged time.Time
}

// Subscribe implements [deferral.Store]. It does no I/O.
func (s *Store) Subscribe(_ context.Context, queues []string, o broker.SubscribeOptions) (deferral.Subscription, error) {
	if o.Prefetch < 0 || o.Lease < 0 {
		return nil, fmt.Errorf("deferrals: a prefetch of %d or a lease of %s is below 0", o.Prefetch, o.Lease)
	}
	if o.Prefetch == 0 {
		o.Prefetch = defaultPrefetch
	}
	if o.Lease == 0 {
		o.Lease = defaultLease
	}
	b := &subscription{
		s: s, prefetch: o.Prefetch, lease: o.Lease, wake: make(chan struct{}, 1), closed: make(chan struct{}), turn: make(chan struct{}, 1),
		queues: slices.Clone(queues), held: make(map[*delivery]struct{}), purged: time.Now(),
	}
	words := make(map[string]bool, len(queues))
	for _, queue := range queues {
		words[jobstore.DeferralWord(queue)] = true
	}
	b.unwatch = s.store.Watch(func(names []string) {
		if names == nil || slices.ContainsFunc(names, func(name string) bool { return words[name] }) {
			b.notify()
		}
	})
	b.renewer.Go(b.renewAlways)
	return b, nil
}

// notify has Receive look at once.
func (b *subscription) notify() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// SetQueues implements [deferral.Subscription].
func (b *subscription) SetQueues(queues []string) {
	b.mu.Lock()
	b.queues, b.again = slices.Clone(queues), time.Time{}
	b.mu.Unlock()
	b.notify()
}

// Receive implements [deferral.Subscription].
func (b *subscription) Receive(ctx context.Context) (deferral.Delivery, error) {
	for {
		if d := b.next(); d != nil {
			return d, nil
		}
		select {
		case b.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-b.closed:
			return nil, fmt.Errorf("deferrals: %w", deferral.ErrClosed)
		}
		err := b.fill(ctx)
		<-b.turn
		if err != nil {
			return nil, err
		}
	}
}

// next returns a delivery that was not handed out.
func (b *subscription) next() *delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.ready) > 0 {
		d := b.ready[0]
		b.ready = b.ready[1:]
		if _, held := b.held[d]; held && !d.isLost() {
			return d
		}
	}
	return nil
}

// fill claims what is due, and waits for that if nothing is.
func (b *subscription) fill(ctx context.Context) error {
	b.mu.Lock()
	full, ready := len(b.held) >= b.prefetch, len(b.ready) > 0
	wait := time.Until(b.again)
	b.mu.Unlock()
	if ready { // another call of Receive has claimed it
		return nil
	}
	if full {
		wait = poll
	}
	if wait > 0 {
		if err := b.pause(ctx, wait); err != nil {
			return err
		}
	}
	b.purge(ctx)
	b.mu.Lock()
	queues, room := b.queues, b.prefetch-len(b.held)
	b.mu.Unlock()
	if len(queues) == 0 || room <= 0 { // word comes of both
		b.lookIn(poll)
		return nil
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	claims, wait, err := b.s.claimDue(call, queues, room, b.lease)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	b.mu.Lock()
	for i := range claims {
		d := &delivery{b: b, c: &claims[i], lost: make(chan struct{})}
		b.held[d] = struct{}{}
		b.ready = append(b.ready, d)
	}
	b.mu.Unlock()
	b.lookIn(min(max(wait, gap), poll)) // a gap lets more of what is due gather
	return nil
}

// lookIn has the next look wait.
func (b *subscription) lookIn(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.again = time.Now().Add(d)
}

// pause waits for a time, for word, or for an end.
func (b *subscription) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.wake:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-b.closed:
		return fmt.Errorf("deferrals: %w", deferral.ErrClosed)
	}
	return nil
}

// purge deletes what was kept long enough, now and then.
func (b *subscription) purge(ctx context.Context) {
	if time.Since(b.purged) < purgeEvery {
		return
	}
	b.purged = time.Now()
	if _, err := b.s.jobs.Purge(ctx); err != nil && ctx.Err() == nil {
		b.s.log.LogAttrs(ctx, slog.LevelWarn, "deferrals that were kept long enough are not deleted", slog.Any("error", err))
	}
}

// renewAlways renews the leases of what is held, until Close.
func (b *subscription) renewAlways() {
	ticker := time.NewTicker(max(b.lease/3, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-b.closed:
			return
		case <-ticker.C:
			b.renewOnce()
		}
	}
}

func (b *subscription) renewOnce() {
	b.mu.Lock()
	held := slices.Collect(maps.Keys(b.held))
	b.mu.Unlock()
	of := make(map[*claim]*delivery, len(held))
	for _, d := range held {
		of[d.c] = d
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	lost, err := b.s.renew(ctx, slices.Collect(maps.Keys(of)), b.lease)
	if err != nil {
		b.s.log.LogAttrs(ctx, slog.LevelWarn, "leases of deferrals are not renewed", slog.Any("error", err))
		return
	}
	for _, c := range lost {
		b.lose(of[c])
	}
}

// lose says that a delivery which is still being settled is another consumer's.
func (b *subscription) lose(d *delivery) {
	b.mu.Lock()
	_, held := b.held[d]
	b.mu.Unlock()
	if held { // one goroutine renews
		close(d.lost)
		b.forget(d)
	}
}

// forget ends the renewal of a delivery.
func (b *subscription) forget(d *delivery) {
	b.mu.Lock()
	full := len(b.held) >= b.prefetch
	delete(b.held, d)
	b.mu.Unlock()
	if full {
		b.notify()
	}
}

// Close implements [deferral.Subscription]. What was not handed out goes back.
func (b *subscription) Close(ctx context.Context) error {
	b.mu.Lock()
	select {
	case <-b.closed:
		b.mu.Unlock()
		return nil
	default:
	}
	close(b.closed)
	ready := b.ready
	b.ready = nil
	b.mu.Unlock()
	b.unwatch()
	b.renewer.Wait()
	var errs []error
	for _, d := range ready {
		errs = append(errs, d.Release(ctx, 0))
	}
	return errors.Join(errs...)
}

// delivery implements [deferral.Delivery].
type delivery struct {
	b    *subscription
	c    *claim
	lost chan struct{}
}

// Attempt implements [deferral.Delivery].
func (d *delivery) Attempt() deferral.Attempt { return d.c.attempt }

// Outcome implements [deferral.Delivery].
func (d *delivery) Outcome() deferral.Outcome { return d.c.outcome }

// Lost implements [deferral.Delivery].
func (d *delivery) Lost() <-chan struct{} { return d.lost }

func (d *delivery) isLost() bool {
	select {
	case <-d.lost:
		return true
	default:
		return false
	}
}

// settled ends the renewal of what is settled.
func (d *delivery) settled(err error) error {
	if err == nil || errors.Is(err, broker.ErrLeaseLost) {
		d.b.forget(d)
	}
	return err
}

// Ack implements [deferral.Delivery].
func (d *delivery) Ack(ctx context.Context) error { return d.settled(d.b.s.end(ctx, d.c)) }

// Next implements [deferral.Delivery].
func (d *delivery) Next(ctx context.Context, at time.Time) error {
	return d.settled(d.b.s.next(ctx, d.c, at))
}

// Release implements [deferral.Delivery].
func (d *delivery) Release(ctx context.Context, after time.Duration) error {
	defer d.b.forget(d)
	return d.b.s.release(ctx, d.c, after)
}
