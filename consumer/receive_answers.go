package consumer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer/internal/wakes"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// answers receives and settles the deferrals of all queues of a consumer. It uses one or two
// goroutines, however many tasks wait for answers.
type answers struct {
	c      *Consumer
	store  deferral.Store
	waker  *wakes.Waker      // nil: a revoked task ends only when its answer comes
	queues map[string]*queue // by name, without side queues

	mu           sync.Mutex
	subscription deferral.Subscription // nil: Run has not subscribed yet
}

// newAnswers returns the receiver of deferrals for c. It starts nothing.
func newAnswers(c *Consumer) *answers {
	a := &answers{c: c, store: c.cfg.Deferrals}
	if store, ok := capability.As[deferral.Waker](a.store); ok {
		a.waker = wakes.New(store, func(queue string, state []byte, rules []revoke.Selector) bool {
			return a.queues[queue].selectsDeferral(state, rules)
		}, func(ctx context.Context, err error) {
			a.warn(ctx, "revoked tasks that wait for answers are not looked at now", err)
		})
	}
	return a
}

// receiveAnswers starts goroutines that receive and settle the deferrals of the queues, except of
// side queues. A deferral is a stored task that waits for an answer from outside. With
// Config.Revocations, and a store that can wake deferrals, they also wake those of revoked tasks.
// Without Config.Deferrals it starts nothing, and stop and end do nothing.
//
// The end of fetch ends the receiving. stop also ends it, and waits for the goroutines. Deferrals
// that were received keep their leases until end, which calls stop and closes the subscription.
func (c *Consumer) receiveAnswers(fetch context.Context, queues []*queue) (stop, end func()) {
	a := c.answers
	if a == nil {
		return func() {}, func() {}
	}
	a.queues = make(map[string]*queue, len(queues))
	names := make([]string, 0, len(queues))
	for _, q := range queues {
		if !q.side() {
			a.queues[q.name] = q
			names = append(names, q.name)
		}
	}
	taking, stopTaking := context.WithCancel(fetch)
	var taker sync.WaitGroup
	taker.Go(func() { a.receive(taking, names) })
	if c.cfg.Revocations != nil && a.waker != nil {
		taker.Go(func() { a.waker.Watch(taking, names) })
	}
	stop = func() {
		stopTaking()
		taker.Wait()
	}
	return stop, func() {
		stop()
		a.close()
	}
}

// subscribe subscribes to the deferrals of the queues with these names, and limits the subscription
// to those that are not paused. It tries once. It stores the subscription in a and returns it, or
// the error of the store. It takes a.mu.
func (a *answers) subscribe(ctx context.Context, names []string) (deferral.Subscription, error) {
	s, err := a.store.Subscribe(ctx, names, broker.SubscribeOptions{})
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.subscription = s
	a.mu.Unlock()
	a.updateQueues()
	return s, nil
}

// close closes the subscription, if there is one, within giveBackTimeout. Call it after all
// received deferrals are settled. It takes a.mu. Errors are logged.
func (a *answers) close() {
	a.mu.Lock()
	s := a.subscription
	a.subscription = nil
	a.mu.Unlock()
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), giveBackTimeout)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		a.warn(ctx, "the subscription to answers is not closed", err)
	}
}

// updateQueues limits the subscription to the queues that are not paused; after fetching has
// stopped these are none. It does nothing if a is nil or has no subscription. It takes a.mu.
func (a *answers) updateQueues() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.subscription == nil {
		return
	}
	names := make([]string, 0, len(a.queues))
	for name, q := range a.queues {
		if q.accepts() {
			names = append(names, name)
		}
	}
	a.subscription.SetQueues(names)
}

// receive receives deferrals and starts their settlement. It blocks until ctx ends or the store is
// closed. It subscribes first. After an error it waits, longer each time, and tries again. It logs
// the first error of a series.
func (a *answers) receive(ctx context.Context, names []string) {
	var gap task.Backoff
	var s deferral.Subscription
	for failures := 0; ; {
		var err error
		var d deferral.Delivery
		if s == nil {
			s, err = a.subscribe(ctx, names)
		}
		if err == nil {
			d, err = s.Receive(ctx)
		}
		switch {
		case err == nil:
			failures = 0
			a.settle(d)
		case ctx.Err() != nil, errors.Is(err, deferral.ErrClosed):
			return
		default:
			if failures++; failures == 1 {
				a.warn(ctx, "answers from outside are not taken now", err)
			}
			wake.Sleep(ctx, gap.Interval(failures-1))
		}
	}
}

// warn logs the message what and err as a warning.
func (a *answers) warn(ctx context.Context, what string, err error) {
	a.c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, what, slog.Any("error", err), slog.String(middleware.LogNode, a.c.cfg.Report.NodeID))
}

// settle settles a received deferral on a goroutine of c.settling and returns at once. If the
// deferral is not settled when that goroutine ends, releaseUnsettled returns it to the store for
// answerRetryDelay.
func (a *answers) settle(claim deferral.Delivery) {
	w := &answer{c: a.c, claim: claim, outcome: claim.Outcome()}
	q := a.queues[claim.Attempt().Queue]
	a.c.settling.Go(func() {
		defer w.releaseUnsettled()
		r, err := q.restore(w)
		if err != nil {
			a.releaseUnreadable(q, w, err)
			return
		}
		q.settleAnswer(r)
	})
}

// releaseUnreadable logs that the deferred task cannot be read and returns the deferral to the
// store for a minute. A newer consumer, or one with the key, may read it. An abandoned deferral
// (one whose attempt is over) is deleted without a log line. Both are repeated for up to
// giveBackTimeout.
func (a *answers) releaseUnreadable(q *queue, w *answer, cause error) {
	ctx, cancel := context.WithTimeout(a.c.settle, giveBackTimeout)
	defer cancel()
	if w.outcome.Kind == deferral.Abandoned { // its attempt is over
		_ = w.Ack(ctx)
		return
	}
	q.log(slog.LevelError, "a deferred task cannot be read; it is released for a minute", slog.String(middleware.LogTask, w.claim.Attempt().Name), slog.Any("error", cause))
	_ = w.Release(ctx, time.Minute)
}
