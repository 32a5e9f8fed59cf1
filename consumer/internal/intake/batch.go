package intake

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/task"
)

// waits counts the workers of a set that wait in batches. The zero value is ready for use. Safe for
// concurrent use.
type waits struct {
	mu      sync.Mutex
	waiting int
	workers int
	all     chan struct{} // closed when all workers wait; nil until it is needed
}

// add adds n to the number of waiting workers. It takes w.mu.
func (w *waits) add(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting += n
	w.notify()
}

// resize sets the number of workers. It takes w.mu.
func (w *waits) resize(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.workers = n
	w.notify()
}

// notify closes w.all if all workers wait. Call it with w.mu held.
func (w *waits) notify() {
	if w.waiting >= w.workers && w.all != nil {
		close(w.all)
		w.all = nil
	}
}

// complete returns a channel that is closed when all workers wait, and now if they do. It takes
// w.mu.
func (w *waits) complete() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = make(chan struct{})
	}
	all := w.all
	w.notify()
	return all
}

// AddWaiting implements [task.BatchHost]. It takes a lock of the workers.
func (q *Queue) AddWaiting(n int) { q.workers.waits.add(n) }

// AwaitLast implements [task.BatchHost].
func (q *Queue) AwaitLast(ctx context.Context) {
	select {
	case <-q.workers.waits.complete():
	case <-q.cfg.Isolated():
	case <-q.Accepting().Done():
	case <-ctx.Done():
	}
}

// Call implements [task.BatchHost].
func (q *Queue) Call(fn func(ctx context.Context) error) error {
	return guard.Call(func() error { return fn(q.cfg.Work) })
}

// CheckBatch returns an error if none of the queues has the workers and the prefetch for most tasks
// of this name at once. If one of the queues is the queue of the task, only that one counts.
// capacity returns the workers and the prefetch of a queue, which may be [NoLimit].
func CheckBatch(name, queue string, most int, queues []string, capacity func(queue string) (workers, prefetch int)) error {
	if slices.Contains(queues, queue) {
		queues = []string{queue}
	}
	var best struct {
		queue             string
		workers, prefetch int
	}
	for _, q := range queues {
		workers, prefetch := capacity(q)
		if prefetch == NoLimit {
			prefetch = workers
		}
		if min(workers, prefetch) >= min(best.workers, best.prefetch) {
			best.queue, best.workers, best.prefetch = q, workers, prefetch
		}
	}
	switch {
	case best.workers < most:
		return fmt.Errorf("swarmiji: consumer: task %q: a batch of %d tasks needs as many workers, and queue %q has %d; set its Workers to %[2]d or more, or BatchOptions.Max to %[4]d or less",
			name, most, best.queue, best.workers)
	case best.prefetch < most:
		return fmt.Errorf("swarmiji: consumer: task %q: a batch of %d tasks needs a prefetch of as many, and queue %q has %d; raise its Prefetch, or set BatchOptions.Max to %[4]d or less",
			name, most, best.queue, best.prefetch)
	}
	return nil
}

var _ task.BatchHost = (*Queue)(nil)
