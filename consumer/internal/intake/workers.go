package intake

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer/internal/runs"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// source supplies workers with deliveries.
type source interface {
	// next blocks until there is a delivery and returns it with its queue. It returns a fetched
	// delivery even if ctx has ended.
	next(ctx context.Context) (*Queue, broker.Delivery, error)
}

// next waits for the next message of a queue with its own workers and returns it with the queue. It
// waits while the queue is paused. Returns the error of ctx if that ends in this wait, else the
// result of the subscription's Receive. It is the source of these workers.
func (q *Queue) next(ctx context.Context) (*Queue, broker.Delivery, error) {
	if q.gate.shut.Load() && !q.gate.await(ctx) {
		return nil, nil, ctx.Err()
	}
	d, err := q.subscription().Receive(ctx)
	return q, d, err
}

// WorkersConfig configures [Workers].
type WorkersConfig struct {
	Workers int    // their number
	Order   *Order // nil: the workers have one queue
	// Overloaded reports whether the workers must fetch no further message. While it returns true, it
	// is called again after a short time.
	Overloaded func(*Workers) bool
}

// Workers are the goroutines that take the deliveries of a queue, or of several queues in strict
// order. Make them with [NewWorkers]. Safe for concurrent use.
type Workers struct {
	// Slots limits how many tasks of the queues run at once. It has as many slots as there are
	// workers.
	Slots runs.Slots

	waits waits // workers that wait in batches

	cfg    WorkersConfig
	from   source
	queues []*Queue // queues whose messages they take
	fetch  context.Context
	failed chan<- error // receives the error that ends the consumer
	halted atomic.Bool  // they fetch nothing, since they are overloaded
	follow *follower    // nil: the prefetch does not follow the work
	wg     sync.WaitGroup

	scaling sync.Mutex // held during a call of Scale

	mu      sync.Mutex
	size    int // configured number of workers
	most    int // a lower limit for them; 0: none
	stopped bool
	members []*worker
}

// worker is a goroutine that receives deliveries and handles them one by one.
type worker struct {
	set   *Workers
	index int
	ctx   context.Context // ends when the worker is removed and when fetching stops
	leave context.CancelFunc
	done  bool // work has returned
	busy  atomic.Bool
	taken atomic.Int64 // messages
}

// NewWorkers returns the workers of the queues, which must be open, the most urgent first. Without
// Order there must be one queue. A queue has one set of workers, which NewWorkers stores in it. It
// starts nothing: call Prepare, then Start.
func NewWorkers(cfg WorkersConfig, queues ...*Queue) *Workers {
	t := &Workers{cfg: cfg, queues: queues, size: cfg.Workers}
	t.from = queues[0]
	if cfg.Order != nil {
		t.from = newPoll(*cfg.Order, queues)
	}
	for _, q := range queues {
		q.workers = t
	}
	if cfg.Order == nil && queues[0].cfg.Follow {
		t.follow = &follower{q: queues[0], t: t}
	}
	return t
}

// Prepare starts the goroutines that fetch for workers with an Order. The workers themselves start
// with Start. An error that ends the consumer, such as a closed broker, is sent to failed, which
// must have room for one error. All goroutines end with fetch.
func (t *Workers) Prepare(fetch context.Context, failed chan<- error) {
	t.fetch, t.failed = fetch, failed
	if p, ok := t.from.(*poll); ok {
		p.run(t)
	}
}

// Start starts the workers and does not wait for them. Call it once, after Prepare. It does nothing
// after Stop. It takes t.mu.
func (t *Workers) Start() { t.resize() }

// Scale changes the number of workers and slots to n, and then the prefetch of their queues.
// Missing workers start at once. Surplus workers leave after their current task; Scale does not
// wait for them. Concurrent calls run one after the other, and each waits for the broker. It takes
// t.scaling, and t.mu only for the number of workers.
//
// Returns the errors of the queues, joined: errors of the broker, or [ErrNotRunning] for a queue
// whose fetching has ended. The number of workers has changed nevertheless, and after an error of
// the broker another goroutine repeats the change of the prefetch until it succeeds. After Stop no
// worker starts or leaves, and Scale returns ErrNotRunning.
func (t *Workers) Scale(n int) error {
	t.scaling.Lock()
	defer t.scaling.Unlock()
	t.mu.Lock()
	t.size = n
	t.mu.Unlock()
	return t.adjust()
}

// Limit limits the number of workers to most, whatever Scale sets; 0: no limit. It starts and ends
// workers and returns errors as Scale does. If the limit stays the same, it does nothing.
func (t *Workers) Limit(most int) error {
	t.scaling.Lock()
	defer t.scaling.Unlock()
	t.mu.Lock()
	same := t.most == most
	t.most = most
	t.mu.Unlock()
	if same {
		return nil
	}
	return t.adjust()
}

// adjust starts and ends workers until their number is Count, and changes the prefetch of the
// queues. It returns the errors of Scale. Call it with t.scaling held.
func (t *Workers) adjust() error {
	n := t.resize()
	return each(t.queues, func(q *Queue, ctx context.Context) error { return q.resizePrefetch(ctx, n) })
}

// resize makes the numbers of workers and slots those of Count, which it returns. It starts missing
// workers. Surplus workers leave after their current task; resize does not wait for them. It does
// nothing after Stop. It takes t.mu.
func (t *Workers) resize() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.count()
	if t.stopped {
		return n
	}
	t.Slots.Resize(int64(n))
	t.waits.resize(n)
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
	return n
}

// Stop makes all workers leave after their current task and prevents new ones. It does not wait for
// them, see Wait. Call it after fetching has stopped. It takes t.mu.
func (t *Workers) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	for _, w := range t.members {
		w.leave()
	}
}

// Wait blocks until all goroutines of the workers have ended. Call it after Stop.
func (t *Workers) Wait() { t.wg.Wait() }

// Count returns the number of workers that Scale has set, or the limit of Limit if that is lower.
// It takes t.mu.
func (t *Workers) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count()
}

// Limited reports whether Limit has set a limit. It takes t.mu.
func (t *Workers) Limited() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.most > 0
}

// count returns the number that Count returns. Call it with t.mu held.
func (t *Workers) count() int {
	if t.most > 0 {
		return min(t.size, t.most)
	}
	return t.size
}

// newWorker returns a worker with this index that has not started. Its context ends with t.fetch.
func (t *Workers) newWorker(index int) *worker {
	ctx, leave := context.WithCancel(t.fetch)
	return &worker{set: t, index: index, ctx: ctx, leave: leave}
}

// start runs the worker on a new goroutine in the wait group of its set.
func (w *worker) start() {
	w.set.wg.Go(func() {
		defer w.exited()
		w.work()
	})
}

// exited starts a new goroutine for the worker if a handler has ended the previous one with
// runtime.Goexit. If work has returned, it does nothing.
func (w *worker) exited() {
	w.free()
	if !w.done {
		w.start() // before this goroutine leaves the wait group, so that a stop waits for the new one
	}
}

// work receives deliveries and handles them one by one, until the worker is removed or fetching
// stops. It blocks until then and sets w.done at the end. After [broker.ErrClosed] it ends the
// consumer and returns. Any other error is logged; work waits, longer each time, and tries again.
func (w *worker) work() {
	t := w.set
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
			t.log(slog.LevelWarn, "receiving from the broker failed; it is repeated", slog.Any("error", err))
			wake.Sleep(w.ctx, gap.Interval(failures))
			failures++
		}
	}
	w.done = true
}

// handle handles a message, and blocks while a handler runs.
func (w *worker) handle(q *Queue, d broker.Delivery) {
	w.busy.Store(true)
	w.taken.Add(1)
	if f := w.set.follow; f != nil {
		f.begins()
	}
	q.cfg.Tasks.Handle(d, w.index)
	w.free()
}

// free marks the worker as free after a message.
func (w *worker) free() {
	w.busy.Store(false)
	if f := w.set.follow; f != nil {
		f.ends()
	}
}

// fail makes Run of the consumer end and return err, with the name of the first queue. If t.failed
// holds an earlier error, err is dropped. It does not block.
func (t *Workers) fail(err error) {
	select {
	case t.failed <- t.queues[0].wrap(err):
	default:
	}
}

// log logs a message with the attributes of the first queue.
func (t *Workers) log(level slog.Level, msg string, attrs ...slog.Attr) {
	t.queues[0].cfg.Log(level, msg, attrs...)
}
