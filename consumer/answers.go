package consumer

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

const (
	answerLease = 30 * time.Second
	answerPoll  = 5 * time.Second // a look at least this often; words and known times come sooner
	answerGap   = 2 * time.Millisecond
	answerRoom  = 256 // settled at a time
	answerCall  = 10 * time.Second
	purgeEvery  = time.Minute
)

// answers takes the answers from outside, for all queues of a consumer: a few goroutines, however many tasks wait.
type answers struct {
	c         *Consumer
	deferrals *jobs.Deferrals
	queues    map[string]*queue // by name, without the side queues
	kick      wake.Signal
	rousing   rousing

	mu   sync.Mutex
	held map[*answer]struct{} // claimed and not settled
}

func newAnswers(c *Consumer) *answers {
	a := &answers{c: c, deferrals: jobs.NewDeferrals(c.cfg.Jobs), kick: wake.New(), held: make(map[*answer]struct{})}
	a.rousing.kick = wake.New()
	return a
}

// takeAnswers takes answers for the queues until stop is called, and looks after what it took until end is.
func (c *Consumer) takeAnswers(fetch context.Context, queues []*queue) (stop, end func()) {
	a := c.answers
	if a == nil {
		return func() {}, func() {}
	}
	a.queues = make(map[string]*queue, len(queues))
	for _, q := range queues {
		if !q.side() {
			a.queues[q.name] = q
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(fetch))
	unwatch := a.deferrals.Watch(slices.Collect(maps.Keys(a.queues)), a.wake)
	unrevoke := a.watchRevocations()
	taking, stopTaking := context.WithCancel(fetch)
	var taker, renewer sync.WaitGroup
	taker.Go(func() { a.run(taking) })
	if c.cfg.Revocations != nil {
		taker.Go(func() { a.rouseAlways(taking) })
	}
	renewer.Go(func() { a.renew(ctx) })
	stop = func() {
		stopTaking()
		taker.Wait()
	}
	return stop, func() {
		stop()
		unrevoke()
		unwatch()
		cancel()
		renewer.Wait()
	}
}

// wake has the goroutine look at once. a may be nil.
func (a *answers) wake() {
	if a == nil {
		return
	}
	a.kick.Notify()
}

// run claims what is due until ctx ends.
func (a *answers) run(ctx context.Context) {
	var gap task.Backoff
	failures, purged := 0, time.Now()
	for ctx.Err() == nil {
		if time.Since(purged) >= purgeEvery {
			purged = time.Now()
			a.purge(ctx)
		}
		wait, err := a.look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			wait = gap.Interval(failures)
			if failures++; failures == 1 {
				a.c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "answers from outside are not taken now",
					slog.Any("error", err), slog.String(middleware.LogNode, a.c.cfg.NodeID))
			}
		default:
			failures = 0
		}
		// A gap lets more of what is due gather.
		if d := min(max(wait, answerGap), answerPoll); err == nil {
			a.kick.Wait(ctx, d)
		} else {
			wake.Sleep(ctx, d)
		}
	}
}

// look claims what is due, and has it settled. It returns for how long there is nothing else to do.
func (a *answers) look(ctx context.Context) (wait time.Duration, err error) {
	names := make([]string, 0, len(a.queues))
	for name, q := range a.queues {
		if q.takes() {
			names = append(names, name)
		}
	}
	room := answerRoom - a.count()
	if len(names) == 0 || room <= 0 { // word comes of a place that is free
		return answerPoll, nil
	}
	call, cancel := context.WithTimeout(ctx, answerCall)
	defer cancel()
	claims, err := a.deferrals.Claim(call, names, room, answerLease)
	if err != nil {
		return 0, err
	}
	for i := range claims.Claimed {
		a.settle(&claims.Claimed[i])
	}
	return claims.Wait, nil
}

// settle settles a claim beside the goroutine that took it.
func (a *answers) settle(claim *jobs.ClaimedDeferral) {
	w := &answer{a: a, claim: *claim, lost: make(chan struct{})}
	a.mu.Lock()
	a.held[w] = struct{}{}
	a.mu.Unlock()
	q := a.queues[claim.Queue]
	a.c.settling.Go(func() {
		defer a.done(w)
		r, err := q.restore(w)
		if err != nil {
			a.unreadable(q, w, err)
			return
		}
		q.settleAnswer(r)
	})
}

// unreadable puts aside a deferral that this consumer cannot read: a newer one may, or one that has the keys.
func (a *answers) unreadable(q *queue, w *answer, cause error) {
	ctx, cancel := context.WithTimeout(a.c.settle, giveBackTimeout)
	defer cancel()
	if w.claim.Kind == jobs.DeferralLost { // it was left by an attempt that is over
		_ = w.Ack(ctx)
		return
	}
	q.log(slog.LevelError, "a deferred task cannot be read, and is put aside", slog.String(middleware.LogTask, w.claim.Name), slog.Any("error", cause))
	_ = w.Release(ctx, time.Minute)
}

// done forgets a claim that was settled, or given up.
func (a *answers) done(w *answer) {
	a.mu.Lock()
	full := len(a.held) >= answerRoom
	delete(a.held, w)
	a.mu.Unlock()
	if full {
		a.wake()
	}
}

func (a *answers) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.held)
}

// renew renews the leases of what is being settled, until ctx ends.
func (a *answers) renew(ctx context.Context) {
	ticker := time.NewTicker(answerLease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		a.renewAll(ctx)
	}
}

func (a *answers) renewAll(ctx context.Context) {
	a.mu.Lock()
	held := slices.Collect(maps.Keys(a.held))
	a.mu.Unlock()
	claims := make([]*jobs.ClaimedDeferral, len(held))
	for i, w := range held {
		claims[i] = &w.claim
	}
	call, cancel := context.WithTimeout(ctx, answerCall)
	defer cancel()
	lost, err := a.deferrals.Renew(call, claims, answerLease)
	if err != nil {
		a.c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "leases of answers are not renewed", slog.Any("error", err))
		return
	}
	for _, w := range held {
		if slices.Contains(lost, w.claim.ID) {
			a.lose(w)
		}
	}
}

// lose says that a claim which is still being settled is somebody else's.
func (a *answers) lose(w *answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, still := a.held[w]; still && !isLost(w) {
		close(w.lost)
	}
}

// purge deletes what was kept long enough.
func (a *answers) purge(ctx context.Context) {
	if _, err := a.c.cfg.Jobs.Purge(ctx); err != nil && ctx.Err() == nil {
		a.c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "jobs that were kept long enough are not deleted", slog.Any("error", err))
	}
}
