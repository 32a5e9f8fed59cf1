package consumer

import (
	"cmp"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer/internal/intake"
)

// MaxWorkers is the largest number of workers that [Consumer.Scale] accepts.
const MaxWorkers = 100_000

// Scale sets the number of workers of a queue, from 1 to [MaxWorkers]. Surplus workers leave after
// their current task. For queues of a [Poll], it changes the workers that they share. To stop all
// tasks of a queue, use Pause.
//
// The prefetch changes with the workers, unless QueueConfig.Prefetch sets it. Scale gives back the
// fetched tasks above the new prefetch that have not started. It waits for the broker; concurrent
// calls for the same workers run one after the other.
//
// Returns [ErrNotRunning], [ErrNoQueue], or an error for a number out of range; these change
// nothing. After an error of the broker the number of workers has changed, and another goroutine
// repeats the change of the prefetch until it succeeds. Safe for concurrent use.
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
	return q.workers.Scale(workers)
}

// CheckBatch implements [task.BatchRegistrar] by the queues that c consumes now. It returns nil if
// Config.Group may add others.
func (c *Consumer) CheckBatch(name, queue string, most int) error {
	if c.cfg.Group != "" {
		return nil
	}
	return intake.CheckBatch(name, queue, most, c.queues.Names(), func(queue string) (workers, prefetch int) {
		cfg := c.queues.Get(queue)
		if workers = cfg.Workers; cfg.Autoscale != nil {
			workers = cfg.Autoscale.Max
		}
		return workers, cfg.prefetch(workers)
	})
}

// prefetch returns how many unsettled messages this number of workers may hold: Prefetch if it is
// set, else the multiplier times workers.
func (c *QueueConfig) prefetch(workers int) int {
	return intake.Limit(c.Prefetch, cmp.Or(c.PrefetchMultiplier, DefaultPrefetchMultiplier), workers)
}
