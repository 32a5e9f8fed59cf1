package intake

import (
	"context"
	"log/slog"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// NoLimit is the value of a prefetch without a limit.
const NoLimit = -1

// largePrefetch is the prefetch that stands for NoLimit in a change of a subscription, since a
// [broker.Resizer] takes 0 as a stop.
const largePrefetch = 10_000

// resizePrefetch changes the prefetch of the subscription for a new number of workers, and gives
// surplus fetched tasks back. See change for errors. Call it with q.control held.
func (q *Queue) resizePrefetch(ctx context.Context, workers int) error {
	want := q.prefetchOf(workers)
	return q.change(ctx, want, q.Prefetch()-want)
}

// change changes the prefetch of the subscription to want. It gives back up to surplus fetched
// tasks that no worker has taken; 0 or less: none. While the queue is paused it only stores
// the new value for resume. If the prefetch stays the same, it does nothing. After an error, which
// it returns, it restores the old value and repeats the change on another goroutine. Call it with
// q.control held.
func (q *Queue) change(ctx context.Context, want, surplus int) error {
	before := q.Prefetch()
	q.setLimit(want)
	if want == before || q.gate.shut.Load() || q.subscription() == nil { // resume sets it
		return nil
	}
	var err error
	if surplus > 0 {
		_, err = q.returnHeld(ctx, surplus)
	}
	if err == nil {
		err = q.setPrefetch(ctx)
	}
	if err != nil {
		q.setLimit(before) // so that the next Scale tries again
		q.setPrefetchLater()
	}
	return err
}

// setPrefetchLater starts a goroutine that sets the prefetch of the subscription and repeats that
// until trySetPrefetch returns true. Otherwise a subscription that was stopped for a change would
// stay stopped. If such a goroutine runs, it does nothing. Call it with q.control held.
func (q *Queue) setPrefetchLater() {
	if q.settingPrefetch {
		return
	}
	q.settingPrefetch = true
	q.cfg.Go(func() {
		var gap task.Backoff
		for attempt := 0; !q.trySetPrefetch(); attempt++ {
			wake.Sleep(q.fetch, gap.Interval(attempt))
		}
	})
}

// trySetPrefetch sets the prefetch for the current number of workers. It returns true if that
// succeeded, or is not needed because the queue is paused or stops; it then clears
// q.settingPrefetch. After an error it restores the old value and returns false. It takes
// q.control.
func (q *Queue) trySetPrefetch() bool {
	q.control.Lock()
	defer q.control.Unlock()
	ctx, cancel := context.WithTimeout(q.fetch, openTimeout)
	defer cancel()
	before := q.Prefetch()
	q.setLimit(q.prefetchOf(q.workers.Count()))
	if !q.Accepts() || q.setPrefetch(ctx) == nil { // resume sets it too
		q.settingPrefetch = false
		return true
	}
	q.setLimit(before)
	return false
}

// setPrefetch sets the prefetch of the subscription to q.Prefetch and returns the error of the
// broker. It does nothing without a subscription, or while the workers are halted: it is called
// again when they resume. If the broker cannot change a prefetch, it logs that once and returns
// nil. It wakes the follower. Call it with q.control held.
func (q *Queue) setPrefetch(ctx context.Context) error {
	if q.workers.halted.Load() || q.subscription() == nil {
		return nil
	}
	n := q.Prefetch()
	if n == NoLimit {
		n = largePrefetch
	}
	ok, err := broker.SetPrefetch(ctx, q.subscription(), n)
	if !ok {
		q.warnFixed.Do(func() {
			q.cfg.Log(slog.LevelWarn, "the prefetch does not follow the number of workers: this broker cannot change it")
		})
	}
	if f := q.workers.follow; f != nil { // it may be too large for long tasks that run
		f.begins()
	}
	return err
}

// Limit returns how many unsettled messages this number of workers may hold: prefetch if it is
// positive, NoLimit if it is negative, else the multiplier times workers.
func Limit(prefetch, multiplier, workers int) int {
	switch {
	case prefetch < 0:
		return NoLimit
	case prefetch > 0:
		return prefetch
	}
	return multiplier * workers
}
