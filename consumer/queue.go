package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer/internal/rates"
	"github.com/swarmiji/swarmiji/consumer/internal/runs"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// queue is one subscription and its workers.
type queue struct {
	c      *Consumer
	name   string // as tasks know it: retries go there
	source string // that is subscribed to: name, or the side queue of an older version
	cfg    QueueConfig
	meta   task.Metadata // of this process: Config.Defaults, over it the queue's

	sub    broker.Subscription
	team   *team // whose workers take its tasks
	leases runs.Leases
	fetch  context.Context // ends when fetching stops

	control  sync.Mutex // one change of what follows at a time; held while the broker is told
	gate     gate       // shut while the queue is paused
	prefetch int        // for the workers there are
	telling  bool       // tellLater is under way
	rated    rates.Line // what rate limits know of it
	early    runs.Slots // of tasks that are acknowledged before their start: as many as the prefetch
	late     runs.Slots // of those that are dead letters and not yet recorded: as many
}

func newQueue(fetch context.Context, c *Consumer, name string, cfg QueueConfig) *queue {
	q := &queue{fetch: fetch, c: c, name: name, source: name, cfg: cfg, meta: task.Merge(c.cfg.Defaults, cfg.Meta)}
	q.hold(cfg.prefetch(cfg.Workers))
	q.rated = q.ratedLine()
	return q
}

// hold sets how many messages the queue may hold.
func (q *queue) hold(prefetch int) {
	q.prefetch = prefetch
	if prefetch == noLimit {
		prefetch = unbounded
	}
	q.early.Resize(int64(prefetch))
	q.late.Resize(int64(prefetch))
}

// openTimeout bounds one attempt to declare and subscribe.
const openTimeout = 10 * time.Second

// open declares the queue and subscribes, however long the broker is away; ctx ends the waiting.
func (q *queue) open(ctx context.Context) error {
	var gap task.Backoff
	for attempt := 0; ; attempt++ {
		err := q.tryOpen(ctx)
		if err == nil || ctx.Err() != nil || !transient(err) {
			return err
		}
		q.log(slog.LevelWarn, "waiting for the broker", slog.Any("error", err))
		if !wake.Sleep(ctx, gap.Interval(attempt)) {
			return err
		}
	}
}

func (q *queue) tryOpen(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := broker.Declare(ctx, q.c.cfg.Broker, broker.Queue{Name: q.source, Levels: q.cfg.Levels}); err != nil {
		return err
	}
	sub, err := q.c.cfg.Broker.Subscribe(ctx, q.source, broker.SubscribeOptions{Prefetch: max(q.prefetch, 0), Lease: q.cfg.Lease})
	if err != nil {
		return err
	}
	q.sub = sub
	return nil
}

// transient reports whether waiting may mend err.
func transient(err error) bool {
	return !errors.Is(err, broker.ErrClosed) && !errors.Is(err, broker.ErrUnsupported) && !errors.Is(err, broker.ErrMalformed) &&
		!errors.Is(err, broker.ErrTooMany)
}

// giveBackTimeout bounds giving back what was not started.
const giveBackTimeout = 10 * time.Second

// giveBack ends the subscription; what was fetched and not started goes back.
func (q *queue) giveBack() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.c.work), giveBackTimeout)
	defer cancel()
	q.control.Lock()
	defer q.control.Unlock()
	_, _ = q.returnHeld(ctx, everything) // what it cannot give back goes back with the subscription
	if err := q.sub.Close(ctx); err != nil && !errors.Is(err, broker.ErrClosed) {
		return fmt.Errorf("swarmiji: consumer: queue %q: %w", q.source, err)
	}
	return nil
}

// everything is a number of messages that no subscription holds.
const everything = math.MaxInt

// returnHeld stops the fetching and gives back at most n messages that the subscription holds and no
// worker has started. A subscription whose prefetch cannot change keeps what it holds: stopped is
// false then.
func (q *queue) returnHeld(ctx context.Context, n int) (stopped bool, err error) {
	if stopped, err = broker.SetPrefetch(ctx, q.sub, 0); !stopped || err != nil {
		return stopped, err
	}
	done, cancel := context.WithCancel(ctx)
	cancel() // Receive hands out what is held even so
	for n > 0 && q.returnNext(done, ctx) {
		n--
	}
	return true, nil
}

// returnNext gives back one message that the subscription holds, and reports whether there was one.
func (q *queue) returnNext(done, ctx context.Context) bool {
	d, err := q.sub.Receive(done)
	if err != nil {
		return false
	}
	r, err := q.read(d, 0)
	if err != nil {
		q.buryUnreadable(d, err)
		return true
	}
	if err := r.giveBack(ctx); err != nil && !broker.Gone(err) {
		q.c.settling.Go(r.giveBackForSure)
	}
	return true
}

func (q *queue) log(level slog.Level, msg string, attrs ...slog.Attr) {
	q.c.cfg.Logger.LogAttrs(context.Background(), level, msg, append(attrs,
		slog.String(middleware.LogQueue, q.source), slog.String(middleware.LogNode, q.c.cfg.Report.NodeID))...)
}
