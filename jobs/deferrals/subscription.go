package deferrals

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/internal/held"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

const (
	defaultPrefetch = 256
	defaultLease    = 30 * time.Second
	poll            = 5 * time.Second // the most time between looks
	gap             = 2 * time.Millisecond
	callTimeout     = 10 * time.Second
	purgeEvery      = time.Minute
	renewAtOnce     = 1000
)

// subscription claims deferrals in the calls of Receive. One goroutine renews their leases, and one
// deletes what was kept long enough: that may take minutes after a rest, and delays no answer.
type subscription struct {
	s        *Store
	prefetch int
	lease    time.Duration
	wake     chan struct{}
	closed   chan struct{}
	held     *held.Set[*delivery, *delivery]
	working  sync.WaitGroup
	stop     context.CancelFunc // of working
	unwatch  func()
	turn     chan struct{} // who holds its token claims

	mu     sync.Mutex
	queues []string
	ready  []*delivery // held, and not handed out
	again  time.Time   // no look before
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
		queues: slices.Clone(queues),
	}
	b.held = held.New(held.Config[*delivery, *delivery]{
		Key: func(d *delivery) *delivery { return d }, Lease: o.Lease, Batch: renewAtOnce, Renew: b.renew, Lost: b.lose,
	})
	words := make(map[string]bool, len(queues))
	for _, queue := range queues {
		words[jobstore.DeferralWord(queue)] = true
	}
	b.unwatch = s.store.Watch(func(names []string) {
		if names == nil || slices.ContainsFunc(names, func(name string) bool { return words[name] }) {
			b.notify()
		}
	})
	working, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.working.Go(func() { b.held.KeepRenewing(working) })
	b.working.Go(func() { b.purge(working) })
	return b, nil
}

// notify wakes Receive.
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

// next returns a claimed delivery that no call has received.
func (b *subscription) next() *delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.ready) > 0 {
		d := b.ready[0]
		b.ready = b.ready[1:]
		if b.held.Holds(d) { // it is not lost
			return d
		}
	}
	return nil
}

// fill claims due deferrals, or waits for them if none is due.
func (b *subscription) fill(ctx context.Context) error {
	b.mu.Lock()
	all, _ := b.held.Len()
	full, ready := all >= b.prefetch, len(b.ready) > 0
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
	b.mu.Lock()
	all, _ = b.held.Len()
	queues, room := b.queues, b.prefetch-all
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
		b.held.Hold(d)
		b.ready = append(b.ready, d)
	}
	b.mu.Unlock()
	b.lookIn(min(max(wait, gap), poll)) // a gap lets more of what is due gather
	return nil
}

// lookIn delays the next look.
func (b *subscription) lookIn(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.again = time.Now().Add(d)
}

// pause waits for a time, a word or an end.
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

// purge deletes expired records until ctx ends.
func (b *subscription) purge(ctx context.Context) {
	for wake.Sleep(ctx, purgeEvery) {
		if _, err := b.s.jobs.Purge(ctx); err != nil && ctx.Err() == nil {
			b.s.log.LogAttrs(ctx, slog.LevelWarn, "deferrals that were kept long enough are not deleted", slog.Any("error", err))
		}
	}
}

// renew renews the leases of deliveries. Close does not cut it short.
func (b *subscription) renew(ctx context.Context, ds []*delivery) (errs []error, asked time.Time, err error) {
	asked = time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	claims := make([]*claim, len(ds))
	for i, d := range ds {
		claims[i] = d.c
	}
	lost, err := b.s.renew(ctx, claims, b.lease)
	if err != nil {
		b.s.log.LogAttrs(ctx, slog.LevelWarn, "leases of deferrals are not renewed", slog.Any("error", err))
		return nil, asked, err
	}
	errs = make([]error, len(ds))
	for i, c := range claims {
		if slices.Contains(lost, c) {
			errs[i] = broker.ErrLeaseLost
		}
	}
	return errs, asked, nil
}

// lose marks an unsettled delivery as lost to another consumer.
func (b *subscription) lose(d *delivery, _ error) {
	if d.Lose() {
		close(d.lost)
		b.forget(d)
	}
}

// forget ends the renewal of a delivery.
func (b *subscription) forget(d *delivery) {
	b.mu.Lock()
	all, _ := b.held.Len()
	b.held.Release(d)
	b.mu.Unlock()
	if all >= b.prefetch {
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
	b.stop()
	b.working.Wait()
	var errs []error
	for _, d := range ready {
		errs = append(errs, d.Release(ctx, 0))
	}
	return errors.Join(errs...)
}

// delivery implements [deferral.Delivery].
type delivery struct {
	held.Item
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

// settle stores the end of an attempt. If that fails the delivery stays held.
func (d *delivery) settle(store func() error) error {
	d.Settle()
	err := store()
	if err == nil || errors.Is(err, broker.ErrLeaseLost) {
		d.b.forget(d)
	} else {
		d.Resume()
	}
	return err
}

// Ack implements [deferral.Delivery].
func (d *delivery) Ack(ctx context.Context) error {
	return d.settle(func() error { return d.b.s.end(ctx, d.c) })
}

// Next implements [deferral.Delivery].
func (d *delivery) Next(ctx context.Context, at time.Time) error {
	return d.settle(func() error { return d.b.s.next(ctx, d.c, at) })
}

// Release implements [deferral.Delivery].
func (d *delivery) Release(ctx context.Context, after time.Duration) error {
	d.Settle()
	defer d.b.forget(d)
	return d.b.s.release(ctx, d.c, after)
}
