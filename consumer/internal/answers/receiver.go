// Package answers receives the deferrals of a consumer's queues: stored tasks that wait for answers
// from outside. It uses one or two goroutines, however many tasks wait.
package answers

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer/internal/wakes"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// closeTimeout limits the closing of the subscription.
const closeTimeout = 10 * time.Second

// Config configures a [Receiver]. All fields are required. The functions must be safe for
// concurrent use.
type Config struct {
	Store deferral.Store
	// Queues returns the names of the consumed queues.
	Queues func() []string
	// Accepts reports whether tasks of a queue may be settled now: it is consumed and not paused.
	Accepts func(queue string) bool
	// Settle settles a deferral on another goroutine.
	Settle func(d deferral.Delivery)
	// Selects reports whether one of the rules matches the task of a deferral, by its stored state.
	Selects func(queue string, state []byte, rules []revoke.Selector) bool
	// Warn logs an error.
	Warn func(ctx context.Context, what string, err error)
}

// Receiver receives deferrals. Make one with [New]. Safe for concurrent use.
type Receiver struct {
	cfg   Config
	waker *wakes.Waker // nil: a revoked task ends only when its answer comes

	mu           sync.Mutex
	subscription deferral.Subscription // nil: not subscribed
}

// New returns a Receiver. It starts nothing.
func New(c Config) *Receiver {
	r := &Receiver{cfg: c}
	if store, ok := capability.As[deferral.Waker](c.Store); ok {
		r.waker = wakes.New(store, c.Selects, func(ctx context.Context, err error) {
			c.Warn(ctx, "revoked tasks that wait for answers are not looked at now", err)
		})
	}
	return r
}

// AddRevocation queues v, whose deferrals are woken. It also receives the revocations from before
// Start. It does nothing if r is nil or its store has no [deferral.Waker]. It does not block.
func (r *Receiver) AddRevocation(v revoke.Revocation) {
	if r != nil {
		r.waker.Add(v)
	}
}

// Start starts goroutines that receive deferrals. With wakeRevoked, and a store that can wake
// deferrals, they also wake those of revoked tasks.
//
// The end of fetch ends the receiving. stop also ends it, and waits for the goroutines. Deferrals
// that were received keep their leases until end, which calls stop and closes the subscription. For
// a nil r Start does nothing, and neither do stop and end.
func (r *Receiver) Start(fetch context.Context, wakeRevoked bool) (stop, end func()) {
	if r == nil {
		return func() {}, func() {}
	}
	taking, stopTaking := context.WithCancel(fetch)
	var taker sync.WaitGroup
	taker.Go(func() { r.receive(taking) })
	if wakeRevoked && r.waker != nil {
		taker.Go(func() { r.waker.Watch(taking, r.cfg.Queues) })
	}
	stop = func() {
		stopTaking()
		taker.Wait()
	}
	return stop, func() {
		stop()
		r.close()
	}
}

// UpdateQueues limits the subscription to the queues that Config.Accepts allows now. It does
// nothing if r is nil or has no subscription. It takes r.mu.
func (r *Receiver) UpdateQueues() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.subscription == nil {
		return
	}
	names := []string{}
	for _, name := range r.cfg.Queues() {
		if r.cfg.Accepts(name) {
			names = append(names, name)
		}
	}
	r.subscription.SetQueues(names)
}

// subscribe subscribes to the deferrals of the queues, and limits the subscription to those that
// accept tasks. It tries once. It stores the subscription in r and returns it, or the error of the
// store. It takes r.mu.
func (r *Receiver) subscribe(ctx context.Context) (deferral.Subscription, error) {
	s, err := r.cfg.Store.Subscribe(ctx, r.cfg.Queues(), broker.SubscribeOptions{})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.subscription = s
	r.mu.Unlock()
	r.UpdateQueues()
	return s, nil
}

// close closes the subscription, if there is one, within closeTimeout. Call it after all received
// deferrals are settled. It takes r.mu. Errors are logged.
func (r *Receiver) close() {
	r.mu.Lock()
	s := r.subscription
	r.subscription = nil
	r.mu.Unlock()
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		r.cfg.Warn(ctx, "the subscription to answers is not closed", err)
	}
}

// receive receives deferrals and starts their settlement. It blocks until ctx ends or the store is
// closed. It subscribes first. After an error it waits, longer each time, and tries again. It logs
// the first error of a series.
func (r *Receiver) receive(ctx context.Context) {
	var gap task.Backoff
	var s deferral.Subscription
	for failures := 0; ; {
		var err error
		var d deferral.Delivery
		if s == nil {
			s, err = r.subscribe(ctx)
		}
		if err == nil {
			d, err = s.Receive(ctx)
		}
		switch {
		case err == nil:
			failures = 0
			r.cfg.Settle(d)
		case ctx.Err() != nil, errors.Is(err, deferral.ErrClosed):
			return
		default:
			if failures++; failures == 1 {
				r.cfg.Warn(ctx, "answers from outside are not taken now", err)
			}
			wake.Sleep(ctx, gap.Interval(failures-1))
		}
	}
}
