package consumer

import (
	"context"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer/internal/intake"
	"github.com/swarmiji/swarmiji/consumer/internal/rates"
	"github.com/swarmiji/swarmiji/consumer/internal/runs"
	"github.com/swarmiji/swarmiji/internal/gopool"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// queue is a queue that the consumer consumes, with its settings.
type queue struct {
	c      *Consumer
	name   string // name in tasks; retries are published to it
	source string // name of the subscribed queue: name, or the side queue of an older version
	cfg    QueueConfig
	meta   task.Metadata // metadata of this process: Config.Defaults overlaid by QueueConfig.Meta

	in       *intake.Queue   // its subscription
	workers  *intake.Workers // they run its tasks
	polled   bool            // they also run the tasks of other queues
	leases   runs.Leases
	fetch    context.Context    // ends when fetching stops, or the consumer leaves the queue
	endFetch context.CancelFunc // leaves the queue
	settling *gopool.Pool       // goroutines that settle its tasks: a part of those of the consumer

	rateQueue rates.Queue // the queue as the rate limiter knows it
	// slots of tasks that are acknowledged before their start; as many as the prefetch
	earlySlots runs.Slots
	// slots of dead-lettered tasks whose failure is not recorded yet; as many as the prefetch
	lateSlots runs.Slots
}

// newQueue returns a queue that is not subscribed yet and has no workers. name is the name in
// tasks, source the name of the queue to subscribe to. Its fetching ends with c.fetch. It has as
// many early and late slots as its prefetch, see queueTasks.Resized.
func newQueue(c *Consumer, name, source string, cfg *QueueConfig) *queue {
	q := &queue{c: c, name: name, source: source, cfg: *cfg, meta: task.Merge(c.cfg.Defaults, cfg.Meta), settling: c.settling.Part()}
	q.rateQueue = q.newRateQueue()
	q.open(queueTasks{q})
	return q
}

// open sets q.fetch, q.endFetch and q.in, which is not open yet. tasks handles its messages.
func (q *queue) open(tasks intake.Tasks) {
	q.fetch, q.endFetch = context.WithCancel(q.c.fetch)
	q.in = intake.NewQueue(q.fetch, &intake.Config{
		Broker: q.c.cfg.Broker, Queue: broker.Queue{Name: q.source, Levels: q.cfg.Levels, Fair: q.cfg.Fair}, Lease: q.cfg.Lease, Prefetch: q.cfg.prefetch, Follow: q.cfg.Prefetch == 0 && q.cfg.PrefetchMultiplier == 0, Bounds: q.cfg.Bounds, Floor: q.cfg.Floor, Tasks: tasks,
		Go: q.settling.Go, Log: q.log, Work: q.c.work, Isolated: q.c.crashes.Isolated,
	}, q.cfg.Workers)
}

// giveBackTimeout limits the time to give back tasks that have not started.
const giveBackTimeout = 10 * time.Second

// close gives back the fetched tasks that have not started and closes the subscription. It waits
// for the broker, at most giveBackTimeout. Call it after fetching has stopped. Returns the error of
// closing the subscription.
func (q *queue) close() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.c.work), giveBackTimeout)
	defer cancel()
	return q.in.Close(ctx)
}

// log logs msg with the name of the subscribed queue and of the node.
func (q *queue) log(level slog.Level, msg string, attrs ...slog.Attr) {
	q.c.cfg.Logger.LogAttrs(context.Background(), level, msg, append(attrs,
		slog.String(middleware.LogQueue, q.source), slog.String(middleware.LogNode, q.c.cfg.Report.NodeID))...)
}

// queueTasks implements [intake.Tasks] for a queue.
type queueTasks struct{ *queue }

// Handle starts or settles the task of a delivery and blocks while its handler runs, see
// [queue.handle].
func (q queueTasks) Handle(d broker.Delivery, worker int) { q.handle(d, worker) }

// GiveBack returns a delivery that has not started to the broker, and blocks until ctx ends at the
// latest. After an error it returns and repeats that on another goroutine. It dead-letters a
// message that cannot be decoded, also on another goroutine.
func (q queueTasks) GiveBack(ctx context.Context, d broker.Delivery) {
	r, err := q.read(d, 0)
	if err != nil {
		q.deadLetterUnreadable(d, err)
		return
	}
	if err := r.giveBack(ctx); err != nil && !broker.Gone(err) {
		q.settling.Go(r.ensureGivenBack)
	}
}

// GiveBackLater returns a delivery that has not started to the broker, on another goroutine, which
// repeats that after errors. A message that cannot be decoded goes to deadLetterUnreadable instead,
// which dead-letters it on another goroutine.
func (q queueTasks) GiveBackLater(d broker.Delivery) {
	r, err := q.read(d, 0)
	if err != nil {
		q.deadLetterUnreadable(d, err)
		return
	}
	r.giveBackUnstarted()
}

// GiveBackWaiting gives back the tasks of the queue that wait for their rate limit, on other
// goroutines. It takes the lock of c.rates.
func (q queueTasks) GiveBackWaiting() { q.c.rates.GiveBack(&q.rateQueue) }

// AcceptsChanged tells the receiver of deferrals which queues are paused now: it receives no
// deferrals of these. Without Config.Deferrals it does nothing. It takes the receiver's lock.
func (q queueTasks) AcceptsChanged() { q.c.answers.UpdateQueues() }

// Resized sets the number of early and late slots to n, the new prefetch. New slots go to waiting
// tasks.
func (q queueTasks) Resized(n int) {
	q.earlySlots.Resize(int64(n))
	q.lateSlots.Resize(int64(n))
}
