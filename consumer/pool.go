package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer/internal/runs"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// Pool runs handlers in the place of the consumer's own goroutines: to share a bound between consumers, to keep handlers on
// goroutines of a certain kind, or to watch them. Its methods are called from many goroutines.
//
// A consumer asks for no more at once than its queues have workers, which are what Scale changes.
type Pool interface {
	// Do runs fn once, on whatever goroutine, and returns nil when fn has ended, also when it ended its goroutine with
	// runtime.Goexit. Do may wait before it runs fn; ctx ends when the consumer stops. When it returns an error fn has not run
	// and will not: the task goes back to its queue, and the worker waits a moment before it takes another.
	Do(ctx context.Context, fn func()) error
}

// performIn is perform in the user's pool.
func (q *queue) performIn(pool Pool, r *run) {
	ran := false
	ctx, cancel := q.while(r)
	defer cancel()
	q.c.reserved.Add(r)
	err := pool.Do(ctx, func() {
		ran = true
		q.c.reserved.Remove(r)
		q.perform(r)
	})
	if ran {
		return
	}
	q.c.reserved.Remove(r)
	if ctx.Err() == nil {
		q.c.warnOnce("pool", "the pool refuses tasks; they go back to their queue", r.logAttrs(slog.Any("error", err))...)
		q.wait(poolPause)
	}
	r.unstarted()
}

// poolPause is how long a worker waits after the pool has refused a task.
const poolPause = 100 * time.Millisecond

// while returns a context that ends with the fetching, with a pause of the queue, and when the broker takes the task back.
func (q *queue) while(r *run) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(q.fetch)
	stopGate := context.AfterFunc(q.gate.context(q.fetch), cancel)
	lost := r.lost() // now: it is another one when the task was acknowledged meanwhile
	stopLost := context.AfterFunc(q.leases.Acquire(q.c.work, lost), cancel)
	return ctx, func() {
		stopGate()
		stopLost()
		q.leases.Release(lost)
		cancel()
	}
}

// awaitSlot waits until the team has room for a task. False: the task must not be started any more.
func (q *queue) awaitSlot(r *run) bool {
	ctx, cancel := q.while(r)
	defer cancel()
	q.c.reserved.Add(r)
	defer q.c.reserved.Remove(r)
	return q.team.slots.Acquire(ctx)
}

// takes reports whether tasks of the queue may be started.
func (q *queue) takes() bool { return q.fetch.Err() == nil && !q.gate.shut.Load() }

// wait waits for d or the end of fetching.
func (q *queue) wait(d time.Duration) { wake.Sleep(q.fetch, d) }

// source is where a team's tasks come from.
type source interface {
	// next waits for a task. What is there is returned even if ctx is done.
	next(ctx context.Context) (*queue, broker.Delivery, error)
}

// team is the workers of a queue, or of several that are polled together.
type team struct {
	c      *Consumer
	name   string // for people
	from   source
	queues []*queue // whose tasks it runs
	fetch  context.Context
	failed chan<- error // gets the error that ends the consumer, if there is one
	slots  runs.Slots
	halted atomic.Bool // it fetches nothing, since too many handlers are stuck
	wg     sync.WaitGroup

	scaling sync.Mutex // one Scale at a time

	mu      sync.Mutex
	size    int // how many workers there are to be
	stopped bool
	members []*worker
}

// worker takes tasks one by one and runs them.
type worker struct {
	team  *team
	index int
	ctx   context.Context // ends when there is one worker too many, and with the fetching
	leave context.CancelFunc
	done  bool // work has returned
}

// prepare makes the team ready. Its workers start with the first resize.
func (t *team) prepare(fetch context.Context, failed chan<- error) {
	t.fetch, t.failed = fetch, failed
	if p, ok := t.from.(*poll); ok {
		p.run(t)
	}
}

// resize sets how many workers there are. Those that are too many leave when they have ended what they do.
func (t *team) resize(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	t.size = n
	t.slots.Resize(int64(n))
	for len(t.members) > n {
		last := len(t.members) - 1
		t.members[last].leave()
		t.members = t.members[:last]
	}
	for i := len(t.members); i < n; i++ {
		w := t.newWorker(i)
		t.members = append(t.members, w)
		w.start()
	}
}

// stop keeps the team from growing, so that it can be waited for. Fetching has ended.
func (t *team) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	for _, w := range t.members {
		w.leave()
	}
}

func (t *team) workers() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.size
}

func (t *team) newWorker(index int) *worker {
	ctx, leave := context.WithCancel(t.fetch)
	return &worker{team: t, index: index, ctx: ctx, leave: leave}
}

func (w *worker) start() {
	w.team.wg.Go(func() {
		defer w.exited()
		w.work()
	})
}

// exited notices a handler that ended its goroutine with runtime.Goexit: the worker goes on with another.
func (w *worker) exited() {
	if !w.done {
		w.start() // before this one is counted out, so that a stop waits for it
	}
}

func (w *worker) work() {
	t := w.team
	var gap task.Backoff
	for failures := 0; w.ready(); {
		q, d, err := t.from.next(w.ctx)
		switch {
		case err == nil:
			failures = 0
			w.handle(q, d)
		case w.ctx.Err() != nil:
		case errors.Is(err, broker.ErrClosed):
			t.fail(err)
			w.done = true
			return
		default:
			t.log(slog.LevelWarn, "cannot receive", slog.Any("error", err))
			wake.Sleep(w.ctx, gap.Interval(failures))
			failures++
		}
	}
	w.done = true
}

// fail ends the consumer.
func (t *team) fail(err error) {
	select {
	case t.failed <- fmt.Errorf("swarmiji: consumer: queue %q: %w", t.name, err):
	default:
	}
}

func (t *team) log(level slog.Level, msg string, attrs ...slog.Attr) {
	t.c.cfg.Logger.LogAttrs(context.Background(), level, msg, append(attrs,
		slog.String(middleware.LogQueue, t.name), slog.String(middleware.LogNode, t.c.cfg.Report.NodeID))...)
}

// stuckPoll is how often a worker looks, when handlers are stuck, whether one has come back.
const stuckPoll = 100 * time.Millisecond

// ready reports whether to fetch another task: not while stopping, and not while the team is
// overrun by stuck handlers.
func (w *worker) ready() bool {
	t := w.team
	for w.ctx.Err() == nil {
		if !t.overrun() {
			if t.halted.Load() && t.halted.CompareAndSwap(true, false) {
				t.log(slog.LevelInfo, "fetching goes on: a handler that ignored its time limit has returned")
				t.fetchAgain()
			}
			return true
		}
		if t.halted.CompareAndSwap(false, true) {
			t.log(slog.LevelError, "fetching stops until handlers that ignore their time limit return")
			t.c.settling.Go(t.returnHeld)
		}
		wake.Sleep(w.ctx, stuckPoll)
	}
	return false
}

// next implements source for a queue with a team of its own.
func (q *queue) next(ctx context.Context) (*queue, broker.Delivery, error) {
	if q.gate.shut.Load() && !q.gate.await(ctx) {
		return nil, nil, ctx.Err()
	}
	d, err := q.sub.Receive(ctx)
	return q, d, err
}

// live is what a consumer that consumes consists of.
type live struct {
	queues []*queue
	teams  []*team
}

// consuming returns it, or ErrNotRunning.
func (c *Consumer) consuming() (*live, error) {
	if l := c.live.Load(); l != nil {
		return l, nil
	}
	return nil, ErrNotRunning
}

// find returns the queue of a name.
func (l *live) find(name string) *queue {
	for _, q := range l.queues {
		if q.name == name && !q.side() {
			return q
		}
	}
	return nil
}

// teamsOf gives every queue its workers.
func teamsOf(c *Consumer, queues []*queue) []*team {
	byName := make(map[string]*queue, len(queues))
	for _, q := range queues {
		byName[q.source] = q
	}
	var teams []*team
	for _, p := range c.cfg.Polls {
		var polled []*queue
		for _, name := range p.Queues {
			if q := byName[name]; q != nil { // else the broker has no consumers left
				polled = append(polled, q)
			}
		}
		if len(polled) == 0 {
			continue
		}
		t := &team{c: c, name: polled[0].name, from: newPoll(p, polled), queues: polled, size: p.Workers}
		for _, q := range polled {
			q.team = t
		}
		teams = append(teams, t)
	}
	for _, q := range queues {
		if q.team == nil {
			q.team = &team{c: c, name: q.source, from: q, queues: []*queue{q}, size: q.cfg.Workers}
			teams = append(teams, q.team)
		}
	}
	return teams
}
