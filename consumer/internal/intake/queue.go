package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// Tasks handles the messages of a [Queue]. Safe for concurrent use. Its methods must not call
// methods of the Queue that take its lock.
type Tasks interface {
	// Handle runs or settles the task of a delivery. It blocks while a handler runs. worker is the
	// index of the calling worker among its [Workers].
	Handle(d broker.Delivery, worker int)
	// GiveBack returns a delivery that has not started to the broker. After an error it returns and
	// repeats the call on another goroutine.
	GiveBack(ctx context.Context, d broker.Delivery)
	// GiveBackLater returns a delivery that has not started to the broker, on another goroutine.
	GiveBackLater(d broker.Delivery)
	// GiveBackWaiting returns to the broker the tasks that were handled, have not started and hold no
	// worker.
	GiveBackWaiting()
	// AcceptsChanged is called after the queue was paused or resumed.
	AcceptsChanged()
	// Resized is called after the prefetch has changed. n is at least 1.
	Resized(n int)
}

// Config configures a [Queue]. Lease, Follow, Bounds and Floor may be zero.
type Config struct {
	Broker broker.Broker
	Queue  broker.Queue  // the queue that Open declares and subscribes to
	Lease  time.Duration // zero: the default of the adapter
	// Prefetch returns the prefetch for a number of workers: a positive number or [NoLimit].
	Prefetch func(workers int) int
	// Follow lets the prefetch follow the work of workers without an Order, see [pace.next]. Prefetch
	// is then its least value while tasks are short. It needs a [broker.Resizer].
	Follow bool
	// Bounds and Floor are those of the subscription. See SetBounds for a change.
	Bounds broker.Bounds
	Floor  float64
	Tasks  Tasks
	// Work is the context of the calls of batches.
	Work context.Context
	// Isolated returns a channel that is closed while a task waits for its quarantine or is in it.
	Isolated func() <-chan struct{}
	// Go runs a function on a goroutine that the stop of the consumer waits for.
	Go func(func())
	// Log logs a message with the attributes of the queue.
	Log func(level slog.Level, msg string, attrs ...slog.Attr)
}

// Queue is the subscription to one queue of a broker. Make it with [NewQueue], call Open, and add
// workers with [NewWorkers]. Safe for concurrent use after that.
type Queue struct {
	cfg     Config
	sub     atomic.Pointer[broker.Subscription] // nil: not open, or paused since before Open
	workers *Workers
	first   int             // the number of workers at NewQueue
	fetch   context.Context // ends when fetching stops
	gate    gate            // shut while the queue is paused

	// of the subscription, or NoLimit; changed with control held
	prefetch atomic.Int64

	// held for each change of the prefetch and of the gate, also while the broker is told
	control         sync.Mutex
	reasons         Reason // why it is paused; guarded by control
	opened          bool   // Open has returned nil; guarded by control
	settingPrefetch bool   // setPrefetchLater runs; guarded by control
	// of the subscription, and of the last SetBounds; guarded by control
	bounds, wanted broker.Bounds
	bounded        atomic.Bool // bounds have a Max

	// log only once that the broker cannot change the prefetch
	warnFixed, warnKept sync.Once
}

// NewQueue returns a queue that is not subscribed yet, with the prefetch for this number of
// workers. Its fetching ends with fetch. It calls Tasks.Resized once.
func NewQueue(fetch context.Context, cfg *Config, workers int) *Queue {
	q := &Queue{cfg: *cfg, first: workers, fetch: fetch, wanted: cfg.Bounds}
	q.useBounds(cfg.Bounds)
	q.setLimit(q.prefetchOf(workers))
	return q
}

// setLimit sets the prefetch and passes it to Tasks.Resized, as largePrefetch if it is NoLimit. If
// long tasks have lowered it, Tasks.Resized gets that of the configuration. setLimit does not tell
// the broker. It may take the lock of the workers. Call it with q.control held.
func (q *Queue) setLimit(prefetch int) {
	q.prefetch.Store(int64(prefetch))
	switch {
	case prefetch == NoLimit:
		prefetch = largePrefetch
	case q.cfg.Follow && q.workers != nil:
		prefetch = max(prefetch, q.prefetchOf(q.workers.Count()))
	}
	q.cfg.Tasks.Resized(prefetch)
}

const (
	// openTimeout limits one attempt to declare a queue and subscribe, and one control call.
	openTimeout = 10 * time.Second
	// firstTimeout limits the first attempt of Declare, so that an unreachable broker is logged soon.
	firstTimeout = time.Second
)

// Declare declares the queue, to find out whether the broker can be used. While the broker is
// unreachable it tries again and logs the first error. If ctx ends, it returns the last error. It
// returns an error that waiting cannot change without another attempt, such as [broker.ErrAccess].
// For a broker that declares no queues it returns nil.
func (q *Queue) Declare(ctx context.Context) error {
	return q.untilReached(ctx, firstTimeout, q.tryDeclare)
}

// Open declares the queue and subscribes to it. A paused queue is only declared: it fetches
// nothing, and subscribes when its pause ends. While the broker is unreachable Open tries again and
// logs the first error. If ctx ends, it returns the last error. It returns an error that waiting
// cannot change without another attempt, such as [broker.ErrAccess].
func (q *Queue) Open(ctx context.Context) error { return q.untilReached(ctx, openTimeout, q.tryOpen) }

// untilReached calls step until it succeeds, and blocks meanwhile. If ctx ends, or waiting cannot
// change the error, it returns the last error of step. It logs the first error that it repeats.
// limit limits the first call, and openTimeout the others.
func (q *Queue) untilReached(ctx context.Context, limit time.Duration, step func(context.Context) error) error {
	var gap task.Backoff
	for attempt := 0; ; attempt++ {
		trying, cancel := context.WithTimeout(ctx, limit)
		err := step(trying)
		cancel()
		if err == nil || ctx.Err() != nil || !transient(err) {
			return err
		}
		if attempt == 0 {
			q.cfg.Log(slog.LevelWarn, "the broker cannot be reached; subscribing is repeated", slog.Any("error", err))
		}
		if !wake.Sleep(ctx, gap.Interval(attempt)) {
			return err
		}
		limit = openTimeout
	}
}

// tryDeclare declares the queue with the broker. It tries once and returns the error of the broker.
func (q *Queue) tryDeclare(ctx context.Context) error {
	return broker.Declare(ctx, q.cfg.Broker, q.cfg.Queue)
}

// tryOpen declares the queue, and subscribes to it unless it is paused. It tries once and returns
// the error of the broker. It takes q.control.
func (q *Queue) tryOpen(ctx context.Context) error {
	if err := q.tryDeclare(ctx); err != nil {
		return err
	}
	q.control.Lock()
	defer q.control.Unlock()
	if q.reasons == 0 {
		if err := q.subscribe(ctx); err != nil {
			return err
		}
	}
	q.opened = true
	return nil
}

// subscribe subscribes to the queue and stores the subscription in q.sub. It tries once and returns
// the error of the broker. Call it with q.control held.
func (q *Queue) subscribe(ctx context.Context) error {
	sub, err := q.subscribeWith(ctx, broker.SubscribeOptions{Prefetch: max(q.Prefetch(), 0), Lease: q.cfg.Lease, Floor: q.cfg.Floor})
	if err == nil {
		q.sub.Store(&sub)
	}
	return err
}

// subscription returns the subscription, or nil before Open. It also returns nil while a pause
// lasts that began before Open.
func (q *Queue) subscription() broker.Subscription {
	if s := q.sub.Load(); s != nil {
		return *s
	}
	return nil
}

// transient reports whether a later attempt to subscribe may succeed after err. It returns false
// for a closed broker, a missing permission and a request that the broker always refuses.
func transient(err error) bool {
	return !errors.Is(err, broker.ErrClosed) && !errors.Is(err, broker.ErrUnsupported) && !errors.Is(err, broker.ErrMalformed) &&
		!errors.Is(err, broker.ErrTooMany) && !errors.Is(err, broker.ErrAccess)
}

// Accepts reports whether tasks of the queue may start: fetching has not stopped and the queue is
// not paused.
func (q *Queue) Accepts() bool { return q.fetch.Err() == nil && !q.gate.shut.Load() }

// Prefetch returns the number of unsettled messages that the subscription may hold, or [NoLimit].
// During a change it may be the new one already.
func (q *Queue) Prefetch() int { return int(q.prefetch.Load()) }

// Paused reports whether the queue is paused.
func (q *Queue) Paused() bool { return q.gate.shut.Load() }

// Accepting returns a context that ends when the queue is paused or fetching stops. It has ended
// already if Accepts returns false. It takes the lock of the gate.
func (q *Queue) Accepting() context.Context { return q.gate.context(q.fetch) }

// Buffered returns the messages that the subscription has fetched and no worker has received. It
// returns nil if the broker does not report them, or there is no subscription.
func (q *Queue) Buffered() []*broker.Message {
	if b, ok := capability.As[broker.Buffer](q.subscription()); ok {
		return b.Buffered()
	}
	return nil
}

// Close gives back the fetched tasks that have not started and closes the subscription. Call it
// after fetching has stopped. Tasks that could not be given back return to the broker with the
// subscription. Returns the error of closing, with the name of the queue; a closed broker is not an
// error. It takes q.control.
func (q *Queue) Close(ctx context.Context) error {
	q.control.Lock()
	defer q.control.Unlock()
	sub := q.subscription()
	if sub == nil {
		return nil
	}
	_, _ = q.returnHeld(ctx, allHeld)
	if err := sub.Close(ctx); err != nil && !errors.Is(err, broker.ErrClosed) {
		return q.wrap(err)
	}
	return nil
}

// wrap returns err with the name of the queue.
func (q *Queue) wrap(err error) error {
	return fmt.Errorf("swarmiji: consumer: queue %q: %w", q.cfg.Queue.Name, err)
}

// allHeld is more than any subscription holds.
const allHeld = math.MaxInt

// returnHeld stops fetching, until setPrefetch is called, and gives back at most n messages that
// the subscription holds and no worker has taken. If the broker cannot change the prefetch, stopped
// is false. In that case, and after an error of the broker, it gives back nothing. Call it with
// q.control held.
func (q *Queue) returnHeld(ctx context.Context, n int) (stopped bool, err error) {
	if stopped, err = broker.SetPrefetch(ctx, q.subscription(), 0); !stopped || err != nil {
		return stopped, err
	}
	done, cancel := context.WithCancel(ctx)
	cancel() // Receive returns held messages even with an ended context
	for n > 0 && q.returnNext(done, ctx) {
		n--
	}
	return true, nil
}

// returnNext gives back one message that the subscription holds, and waits for that. It returns
// false if the subscription holds no message or is closed. done is a context that has ended, so
// that Receive does not wait; ctx limits the call of GiveBack.
func (q *Queue) returnNext(done, ctx context.Context) bool {
	d, err := q.subscription().Receive(done)
	if err != nil {
		return false
	}
	q.cfg.Tasks.GiveBack(ctx, d)
	return true
}

// returnAll stops fetching until setPrefetch is called, and gives back the tasks of the queue that
// were fetched and have not started. Tasks that wait for their rate limit are given back on other
// goroutines, for which it does not wait, in every case. It takes the lock of the rate limits. Call
// it with q.control held.
//
// If the broker cannot change the prefetch, the tasks that no worker has received stay. That is
// logged once, and the result is nil. After an error of the broker, which it returns, these tasks
// stay too.
func (q *Queue) returnAll(ctx context.Context) error {
	q.cfg.Tasks.GiveBackWaiting()
	ok, err := q.returnHeld(ctx, allHeld)
	if !ok {
		q.warnKept.Do(func() {
			q.cfg.Log(slog.LevelWarn, "a stopped queue keeps its fetched tasks: this broker cannot change the prefetch")
		})
	}
	return err
}

// Lost reports whether the broker has taken d back.
func Lost(d broker.Delivery) bool {
	select {
	case <-d.Lost():
		return true
	default:
		return false
	}
}
