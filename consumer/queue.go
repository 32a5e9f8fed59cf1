package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/backoff"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// queue is one subscription and its workers.
type queue struct {
	c        *Consumer
	name     string // as tasks know it: retries go there
	source   string // that is subscribed to: name, or its side queue of suspects
	suspects bool   // whether source is the side queue
	cfg      QueueConfig
	meta     task.Metadata // of this process: Config.Defaults, over it the queue's

	sub     broker.Subscription
	workers sync.WaitGroup
	leases  leases
	fetch   context.Context // ends when fetching stops
	failed  chan<- error
}

func newQueue(c *Consumer, name string, cfg QueueConfig) *queue {
	return &queue{c: c, name: name, source: name, cfg: cfg, meta: task.Merge(c.cfg.Defaults, cfg.Meta)}
}

// openTimeout bounds one attempt to declare and subscribe.
const openTimeout = 10 * time.Second

// open declares the queue and subscribes, however long the broker is away; ctx ends the waiting.
func (q *queue) open(ctx context.Context) error {
	var gap backoff.Exponential
	for attempt := 0; ; attempt++ {
		err := q.tryOpen(ctx)
		if err == nil || ctx.Err() != nil || !transient(err) {
			return err
		}
		q.log(slog.LevelWarn, "waiting for the broker", slog.Any("error", err))
		select {
		case <-ctx.Done():
			return err
		case <-time.After(gap.Delay(attempt)):
		}
	}
}

func (q *queue) tryOpen(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := broker.Declare(ctx, q.c.cfg.Broker, broker.Queue{Name: q.source, Levels: q.cfg.Levels}); err != nil {
		return err
	}
	sub, err := q.c.cfg.Broker.Subscribe(ctx, q.source, broker.SubscribeOptions{Prefetch: q.cfg.Prefetch, Lease: q.cfg.Lease})
	if err != nil {
		return err
	}
	q.sub = sub
	return nil
}

// transient reports whether waiting may mend err.
func transient(err error) bool {
	return !errors.Is(err, broker.ErrClosed) && !errors.Is(err, broker.ErrUnsupported) && !errors.Is(err, broker.ErrMalformed)
}

// start starts the workers. failed gets the error that ends the consumer, if there is one.
func (q *queue) start(fetch context.Context, failed chan<- error) {
	q.fetch, q.failed = fetch, failed
	for i := range q.cfg.Workers {
		q.startWorker(i)
	}
}

func (q *queue) startWorker(i int) {
	q.workers.Go(func() {
		w := &worker{queue: q, index: i}
		defer w.exited()
		w.work()
	})
}

// worker takes tasks one by one and runs them.
type worker struct {
	queue   *queue
	index   int
	current *run // whose handler is running
	done    bool // work has returned
}

// exited notices a handler that ended its goroutine with runtime.Goexit, which nothing can recover: the task fails, and
// another worker takes this one's place.
func (w *worker) exited() {
	if w.done {
		return
	}
	q := w.queue
	q.startWorker(w.index) // before this one is counted out, so that a stop waits for it
	if r := w.current; r != nil {
		q.finish(r, nil, errGoexit)
	}
}

func (w *worker) work() {
	q := w.queue
	var gap backoff.Exponential
	for failures := 0; q.ready(); {
		d, err := q.sub.Receive(q.fetch)
		switch {
		case err == nil:
			failures = 0
			w.handle(d)
		case q.fetch.Err() != nil:
		case errors.Is(err, broker.ErrClosed):
			select {
			case q.failed <- fmt.Errorf("swarmiji: consumer: queue %q: %w", q.source, err):
			default:
			}
			w.done = true
			return
		default:
			q.log(slog.LevelWarn, "cannot receive", slog.Any("error", err))
			q.pause(gap.Delay(failures))
			failures++
		}
	}
	w.done = true
}

// stuckPoll is how often a queue whose handlers are stuck looks whether one has come back.
const stuckPoll = 100 * time.Millisecond

// ready reports whether to fetch another task: not while stopping, and not while twice as many handlers as there are
// workers have outlived their time limit, which would only add to them.
func (q *queue) ready() bool {
	for q.fetch.Err() == nil {
		if q.c.stuck.Load() < int64(2*q.c.workers()) {
			return true
		}
		q.c.warnOnce("stuck "+q.source, "fetching stops until handlers that ignore their time limit return", slog.String(middleware.LogQueue, q.name))
		q.pause(stuckPoll)
	}
	return false
}

// workers returns how many handlers the consumer runs at once.
func (c *Consumer) workers() int {
	n := 0
	for _, q := range c.cfg.Queues {
		n += q.Workers
	}
	return n
}

// pause waits for d or the end of fetching.
func (q *queue) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-q.fetch.Done():
	}
}

// giveBackTimeout bounds giving back what was not started.
const giveBackTimeout = 10 * time.Second

// giveBack ends the subscription; what was fetched and not started goes back.
func (q *queue) giveBack() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.c.work), giveBackTimeout)
	defer cancel()
	q.returnHeld(ctx)
	if err := q.sub.Close(ctx); err != nil && !errors.Is(err, broker.ErrClosed) {
		return fmt.Errorf("swarmiji: consumer: queue %q: %w", q.source, err)
	}
	return nil
}

// returnHeld gives back what the subscription holds and no worker has started. Where that would look like a crash to the
// next consumer it goes back as a copy.
func (q *queue) returnHeld(ctx context.Context) {
	if ok, err := broker.SetPrefetch(ctx, q.sub, 0); !ok || err != nil {
		return
	}
	done, cancel := context.WithCancel(ctx)
	cancel() // Receive hands out what is held even so
	for {
		d, err := q.sub.Receive(done)
		if err != nil {
			return
		}
		r, err := q.read(d, 0)
		if err != nil {
			q.buryUnreadable(d, err)
			continue
		}
		if err := r.giveBack(ctx); err != nil && !broker.Gone(err) {
			r.log(slog.LevelWarn, "task not given back; the broker will notice", slog.Any("error", err))
		}
	}
}

func (q *queue) log(level slog.Level, msg string, attrs ...slog.Attr) {
	q.c.cfg.Logger.LogAttrs(context.Background(), level, msg, append(attrs,
		slog.String(middleware.LogQueue, q.source), slog.String(middleware.LogNode, q.c.cfg.NodeID))...)
}
