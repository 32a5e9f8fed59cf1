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
	poll            = 5 * time.Second // maximum time between two claims
	gap             = 2 * time.Millisecond
	callTimeout     = 10 * time.Second
	purgeEvery      = time.Minute
	renewAtOnce     = 1000
)

// subscription claims due deferrals during calls of Receive. One goroutine renews their leases.
// Another one deletes expired records, which may take minutes and must not delay answers.
type subscription struct {
	s        *Store
	prefetch int
	lease    time.Duration
	wake     chan struct{}
	closed   chan struct{}
	// held contains the deliveries that are claimed and not settled, received or not. It renews their
	// leases.
	held    *held.Set[*delivery, *delivery]
	working sync.WaitGroup
	stop    context.CancelFunc // ends the goroutines of working
	// unwatch ends the watch of the store.
	unwatch func()
	token   chan struct{} // a mutex with a ctx: the goroutine whose element it contains claims

	mu        sync.Mutex
	queues    []string
	ready     []*delivery // claimed and not yet received
	notBefore time.Time   // no claim before this time
}

// Subscribe returns a subscription for the due deferrals of queues. It starts two goroutines and
// watches the store for notifications, until its Close. It does no I/O and ignores the context.
//
// A prefetch of 0 means 256 unsettled deferrals, a lease of 0 means 30 s. Returns an error if one
// of them is negative. It implements [deferral.Store].
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
		s: s, prefetch: o.Prefetch, lease: o.Lease, wake: make(chan struct{}, 1), closed: make(chan struct{}), token: make(chan struct{}, 1),
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

// notify makes a Receive that waits in pause, or the next one to wait, try to claim deferrals. It
// does not block.
func (b *subscription) notify() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// SetQueues replaces the queues of the subscription and wakes Receive, which may claim at once.
// Claimed deferrals of other queues are still delivered. Notifications still concern the queues of
// Subscribe; deferrals of new queues are found by polling. It takes b.mu. It implements
// [deferral.Subscription].
func (b *subscription) SetQueues(queues []string) {
	b.mu.Lock()
	b.queues, b.notBefore = slices.Clone(queues), time.Time{}
	b.mu.Unlock()
	b.notify()
}

// Receive returns the next claimed deferral. It blocks until one is due, and while prefetch
// deferrals are unsettled. A deferral that is claimed already is returned even if ctx has ended or
// Close was called. Of concurrent calls only one claims at a time; the others wait for it.
//
// Returns the cause of ctx's end, [deferral.ErrClosed] after Close, or an error of the store,
// after which it may be called again. It implements [deferral.Subscription].
func (b *subscription) Receive(ctx context.Context) (deferral.Delivery, error) {
	for {
		if d := b.next(); d != nil {
			return d, nil
		}
		select {
		case b.token <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-b.closed:
			return nil, fmt.Errorf("deferrals: %w", deferral.ErrClosed)
		}
		err := b.fill(ctx)
		<-b.token
		if err != nil {
			return nil, err
		}
	}
}

// next removes the first delivery that no call has received and returns it. It drops deliveries
// that were lost. Returns nil if none is ready. It takes b.mu.
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

// fill makes one try to claim due deferrals, and adds them to b.ready. It first waits until
// b.notBefore, or for poll while prefetch deferrals are unsettled; a notification ends the wait.
// The claim may take callTimeout.
//
// Returns nil even if it claimed nothing: another call has filled b.ready, no queue is set, or no
// deferral is due. Returns an error of the store, of ctx, or ErrClosed. Only the goroutine whose
// element is in b.token may call it. It takes b.mu, but does not hold it while it waits.
func (b *subscription) fill(ctx context.Context) error {
	b.mu.Lock()
	all, _ := b.held.Len()
	full, ready := all >= b.prefetch, len(b.ready) > 0
	wait := time.Until(b.notBefore)
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
	queues, free := b.queues, b.prefetch-all
	b.mu.Unlock()
	if len(queues) == 0 || free <= 0 { // a notification follows a change of either
		b.claimAfter(poll)
		return nil
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	claims, wait, err := b.s.claimDue(call, queues, free, b.lease)
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
	b.claimAfter(min(max(wait, gap), poll)) // the gap lets more deferrals become due
	return nil
}

// claimAfter sets b.notBefore, the time of the next claim, to d from now. It takes b.mu.
func (b *subscription) claimAfter(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notBefore = time.Now().Add(d)
}

// pause blocks for the duration d, or until a notification, and then returns nil. Returns the cause
// if ctx ends, and an error that wraps ErrClosed after Close.
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

// purge deletes expired records of jobs and deferrals once a minute until ctx ends. It logs errors.
func (b *subscription) purge(ctx context.Context) {
	for wake.Sleep(ctx, purgeEvery) {
		if _, err := b.s.jobs.Purge(ctx); err != nil && ctx.Err() == nil {
			b.s.log.LogAttrs(ctx, slog.LevelWarn, "cannot delete expired deferrals; trying again in a minute", slog.Any("error", err))
		}
	}
}

// renew renews the leases of deliveries and waits for the store, at most callTimeout. The end of
// ctx and Close do not interrupt it. errs contains for each delivery, in the order of ds: nil if
// its lease was renewed, broker.ErrLeaseLost, or held.ErrUnknown if it may have been renewed or
// not. The new leases begin at asked or later.
//
// If the call to the store fails, renew logs err and returns no errs. Each lease may have been
// renewed or not.
func (b *subscription) renew(ctx context.Context, ds []*delivery) (errs []error, asked time.Time, err error) {
	asked = time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	claims := make([]*claim, len(ds))
	for i, d := range ds {
		claims[i] = d.c
	}
	lost, unknown, err := b.s.renew(ctx, claims, b.lease)
	if err != nil {
		b.s.log.LogAttrs(ctx, slog.LevelWarn, "cannot renew the leases of deferrals", slog.Any("error", err))
		return nil, asked, err
	}
	errs = make([]error, len(ds))
	for i, c := range claims {
		switch {
		case slices.Contains(lost, c):
			errs[i] = broker.ErrLeaseLost
		case slices.Contains(unknown, c):
			errs[i] = held.ErrUnknown
		}
	}
	return errs, asked, nil
}

// lose marks a delivery as lost to another consumer, closes its Lost channel, and removes it from
// b.held (forget), which takes b.mu. A repeated call has no effect. The goroutine that renews
// leases calls it.
func (b *subscription) lose(d *delivery, _ error) {
	if d.Lose() {
		close(d.lost)
		b.forget(d)
	}
}

// forget removes a delivery from b.held, which ends the renewal of its lease, and wakes
// Receive if the subscription was full. It writes nothing to the store. It takes b.mu.
func (b *subscription) forget(d *delivery) {
	b.mu.Lock()
	all, _ := b.held.Len()
	b.held.Release(d)
	b.mu.Unlock()
	if all >= b.prefetch {
		b.notify()
	}
}

// Close ends Receive and the renewals, and waits for the two goroutines, even after the end of
// ctx. Then it releases the deferrals that no call has received, so that other consumers can claim
// them at once. Returns the errors of these releases, joined.
//
// Received deferrals can still be settled until their leases end. A repeated call returns nil at
// once. It takes b.mu, but does not hold it while it waits. It implements [deferral.Subscription].
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

// delivery implements [deferral.Delivery]: it is the claim c of a deferral by the subscription b.
// lost is closed when another consumer has claimed the deferral.
type delivery struct {
	held.Item
	b    *subscription
	c    *claim
	lost chan struct{}
}

// Attempt returns the attempt that the deferral belongs to. It implements [deferral.Delivery].
func (d *delivery) Attempt() deferral.Attempt { return d.c.attempt }

// Outcome returns the reason why the deferral was delivered. It implements [deferral.Delivery].
func (d *delivery) Outcome() deferral.Outcome { return d.c.outcome }

// Lost returns a channel that is closed when another consumer has the deferral. It implements
// [deferral.Delivery].
func (d *delivery) Lost() <-chan struct{} { return d.lost }

// settle calls store, which stores the end of the delivery, and returns its error. After nil or
// broker.ErrLeaseLost the lease is no longer renewed. After another error the delivery stays held,
// and may be settled again. While store runs, a failed renewal does not mark the delivery as lost.
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

// Ack stores that the task of the deferral is settled; the deferral is then over. Returns
// [broker.ErrLeaseLost] if another consumer has claimed the deferral. After another error it may be
// repeated. It implements [deferral.Delivery].
func (d *delivery) Ack(ctx context.Context) error {
	return d.settle(func() error { return d.b.s.end(ctx, d.c) })
}

// Next stores that the next attempt of the task was published and is due at the given time; a past
// time means now. The deferral then reserves the same key for that attempt; its old answer and
// state are deleted. Its lease is no longer renewed. It implements [deferral.Delivery].
//
// Returns [broker.ErrLeaseLost] if another consumer has claimed the deferral. After another error
// it may be repeated; it returns ErrLeaseLost if the first call took effect.
func (d *delivery) Next(ctx context.Context, at time.Time) error {
	return d.settle(func() error { return d.b.s.next(ctx, d.c, at) })
}

// Release gives the deferral back, so that it is delivered again after the given time. The renewal
// of its lease ends in any case, also after an error. Returns [broker.ErrLeaseLost] if another
// consumer has claimed the deferral. Returns errors of the store; the deferral is then delivered
// again when its lease ends. It implements [deferral.Delivery].
func (d *delivery) Release(ctx context.Context, after time.Duration) error {
	d.Settle()
	defer d.b.forget(d)
	return d.b.s.release(ctx, d.c, after)
}
