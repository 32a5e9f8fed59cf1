package consumer

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// MaxWorkers is the most workers that [Consumer.Scale] gives a queue.
const MaxWorkers = 100_000

// Scale sets how many workers a queue has, 1 to [MaxWorkers]; to have none of its tasks run there is Pause. When there are fewer
// than before, those that are too many leave when their tasks have ended: no task is cut short. The prefetch follows where it is a
// multiple of the workers, and what is held beyond it and not started goes back; one that QueueConfig.Prefetch says stays as it
// is. Queues that are polled together have one set of workers: the name of any of them stands for all.
//
// Besides [ErrNotRunning] and [ErrNoQueue], which leave everything as it is, Scale may return what the broker said when it was told
// the prefetch; the workers have changed all the same, and the broker is told again until it answers. It may be called at any time, from any goroutine.
func (c *Consumer) Scale(name string, workers int) error {
	l, err := c.consuming()
	if err != nil {
		return err
	}
	q := l.find(name)
	switch {
	case q == nil:
		return fmt.Errorf("%w: %q", ErrNoQueue, name)
	case workers < 1 || workers > MaxWorkers:
		return fmt.Errorf("swarmiji: consumer: queue %q cannot have %d workers: 1 to %d", name, workers, MaxWorkers)
	}
	t := q.team
	t.scaling.Lock()
	defer t.scaling.Unlock()
	t.resize(workers)
	return each(t.queues, func(q *queue, ctx context.Context) error { return q.follow(ctx, workers) })
}

// noLimit is a prefetch without a bound.
const noLimit = -1

// unbounded is what no limit becomes for a subscription that was stopped: to a Resizer 0 says just that.
const unbounded = 10_000

// prefetch returns how many messages so many workers may hold: positive, or noLimit.
func (c *QueueConfig) prefetch(workers int) int {
	switch {
	case c.Prefetch < 0:
		return noLimit
	case c.Prefetch > 0:
		return c.Prefetch
	}
	return c.PrefetchMultiplier * workers
}

// follow changes the prefetch for so many workers. It is called with control held.
func (q *queue) follow(ctx context.Context, workers int) error {
	before := q.prefetch
	q.hold(q.cfg.prefetch(workers))
	if q.prefetch == before || q.gate.shut.Load() { // Resume tells it
		return nil
	}
	var err error
	if q.prefetch < before {
		_, err = q.returnHeld(ctx, before-q.prefetch)
	}
	if err == nil {
		err = q.tellPrefetch(ctx)
	}
	if err != nil {
		q.hold(before) // so that the next Scale tries again
		q.tellLater()
	}
	return err
}

// tellLater tells the prefetch until the broker has heard it: a subscription that was stopped for a change must not stay so. It is
// called with control held.
func (q *queue) tellLater() {
	if q.telling {
		return
	}
	q.telling = true
	q.c.settling.Go(func() {
		var gap task.Backoff
		for attempt := 0; !q.told(); attempt++ {
			q.wait(gap.Interval(attempt))
		}
	})
}

// told tells the prefetch for the workers there are, and reports whether that is done, or not to be done any more.
func (q *queue) told() bool {
	q.control.Lock()
	defer q.control.Unlock()
	ctx, cancel := context.WithTimeout(q.fetch, openTimeout)
	defer cancel()
	before := q.prefetch
	q.hold(q.cfg.prefetch(q.team.workers()))
	if !q.takes() || q.tellPrefetch(ctx) == nil { // Resume tells it too
		q.telling = false
		return true
	}
	q.hold(before)
	return false
}

// tellPrefetch tells the broker how much may be held, unless the team is halted: then that is done when it goes on.
func (q *queue) tellPrefetch(ctx context.Context) error {
	if q.team.halted.Load() {
		return nil
	}
	n := q.prefetch
	if n == noLimit {
		n = unbounded
	}
	ok, err := broker.SetPrefetch(ctx, q.sub, n)
	if !ok {
		q.c.warnOnce("prefetch "+q.source, "the prefetch does not follow the workers: this broker's cannot change")
	}
	return err
}
