package consumer

import (
	"context"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// Pool runs handlers instead of the consumer's own goroutines, for example to share a limit between
// consumers or to measure handlers. Its methods are called from many goroutines.
//
// A consumer makes at most as many calls at once as its queues have workers, which Scale changes.
type Pool interface {
	// Do runs fn once on any goroutine and returns nil when fn has ended, also if fn ended its
	// goroutine with runtime.Goexit. Do may wait before it runs fn; ctx ends when the consumer stops.
	//
	// If Do returns an error, it has not run fn and never will. The task is given back to its queue,
	// and the worker waits 100 ms.
	Do(ctx context.Context, fn func()) error
}

// performInPool calls perform in the user's pool and waits for it. The task counts as reserved (see
// [Consumer.Reserved]) until perform runs.
//
// If the pool refuses the task, performInPool logs that once, blocks the worker for poolPause, and
// then gives the task back on another goroutine. After a stop, a pause of the queue or the loss of
// the task it neither waits nor logs.
func (q *queue) performInPool(pool Pool, r *run) {
	ran := false
	ctx, cancel := q.waitContext(r)
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
		q.c.warnOnce("pool", "Config.Pool refused a task; it is given back to its queue", r.logAttrs(slog.Any("error", err))...)
		q.wait(poolPause)
	}
	r.giveBackUnstarted()
}

// poolPause sets the pause of a worker after the pool has refused a task.
const poolPause = 100 * time.Millisecond

// waitContext returns a context for a wait with the task r before its start. It ends when fetching
// stops, when the queue is paused, and when the broker takes the task back. Call the returned
// function to release it.
func (q *queue) waitContext(r *run) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(q.fetch)
	stopGate := context.AfterFunc(q.in.Accepting(), cancel)
	lost := r.lost() // read once: an early acknowledgement changes it
	stopLost := context.AfterFunc(q.leases.Acquire(q.c.work, lost), cancel)
	return ctx, func() {
		stopGate()
		stopLost()
		q.leases.Release(lost)
		cancel()
	}
}

// awaitSlot blocks until the workers of the queue have a free slot, takes it and returns true. It
// returns false if the task must not start any more: the consumer stops, the queue is paused, or
// the broker has taken the task back. The caller must then give the task back. The task counts as
// reserved meanwhile.
func (q *queue) awaitSlot(r *run) bool {
	ctx, cancel := q.waitContext(r)
	defer cancel()
	q.c.reserved.Add(r)
	defer q.c.reserved.Remove(r)
	return q.workers.Slots.Acquire(ctx)
}

// accepts reports whether tasks of the queue may start: fetching has not stopped and the queue is
// not paused.
func (q *queue) accepts() bool { return q.in.Accepts() }

// wait blocks for d or until fetching stops.
func (q *queue) wait(d time.Duration) { wake.Sleep(q.fetch, d) }
