package consumer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// answers takes the answers from outside, for all queues of a consumer: a few goroutines, however
// many tasks wait.
type answers struct {
	c      *Consumer
	store  deferral.Store
	waker  deferral.Waker    // nil: revocations wait for answers
	queues map[string]*queue // by name, without the side queues
	toWake toWake

	mu           sync.Mutex
	subscription deferral.Subscription // nil: Run has not begun
}

func newAnswers(c *Consumer) *answers {
	a := &answers{c: c, store: c.cfg.Deferrals}
	a.waker, _ = capability.As[deferral.Waker](a.store)
	a.toWake.kick = wake.New()
	return a
}

// takeAnswers takes answers for the queues until stop is called, and looks after what it took until
// end is.
func (c *Consumer) takeAnswers(fetch context.Context, queues []*queue) (stop, end func()) {
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
	taker.Go(func() { a.run(taking, names) })
	if c.cfg.Revocations != nil && a.waker != nil {
		taker.Go(func() { a.keepWaking(taking) })
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

// subscribe begins a subscription.
func (a *answers) subscribe(ctx context.Context, names []string) (deferral.Subscription, error) {
	s, err := a.store.Subscribe(ctx, names, broker.SubscribeOptions{})
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.subscription = s
	a.mu.Unlock()
	a.choose()
	return s, nil
}

// close ends the subscription, when all that it handed out is settled.
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

// choose has answers taken for the queues that are not paused. a may be nil.
func (a *answers) choose() {
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
		if q.takes() {
			names = append(names, name)
		}
	}
	a.subscription.SetQueues(names)
}

// run has what is due settled until ctx ends.
func (a *answers) run(ctx context.Context, names []string) {
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

func (a *answers) warn(ctx context.Context, what string, err error) {
	a.c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, what, slog.Any("error", err), slog.String(middleware.LogNode, a.c.cfg.Report.NodeID))
}

// settle settles a claim beside the goroutine that took it.
func (a *answers) settle(claim deferral.Delivery) {
	w := &answer{c: a.c, claim: claim, outcome: claim.Outcome()}
	q := a.queues[claim.Attempt().Queue]
	a.c.settling.Go(func() {
		defer w.giveUp()
		r, err := q.restore(w)
		if err != nil {
			a.unreadable(q, w, err)
			return
		}
		q.settleAnswer(r)
	})
}

// unreadable puts aside a deferral that this consumer cannot read: a newer one may, or one that has
// the keys.
func (a *answers) unreadable(q *queue, w *answer, cause error) {
	ctx, cancel := context.WithTimeout(a.c.settle, giveBackTimeout)
	defer cancel()
	if w.outcome.Kind == deferral.Abandoned { // it was left by an attempt that is over
		_ = w.Ack(ctx)
		return
	}
	q.log(slog.LevelError, "a deferred task cannot be read, and is put aside", slog.String(middleware.LogTask, w.claim.Attempt().Name), slog.Any("error", cause))
	_ = w.Release(ctx, time.Minute)
}
