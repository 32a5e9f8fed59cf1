package consumer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/middleware"
)

// statsTimeout limits one read of the length of a queue.
const statsTimeout = 5 * time.Second

// watchLengths starts a goroutine that writes the lengths of the queues to the user's metrics now
// and every Tuning.QueueLook. It does nothing without user metrics, if the broker cannot report
// lengths, or if QueueLook is negative.
//
// stop ends the goroutine, which removes the lengths from the metrics, and waits for it. The end of
// ctx ends it, too.
func (c *Consumer) watchLengths(ctx context.Context) (stop func()) {
	inspector, ok := capability.As[broker.Inspector](c.cfg.Broker)
	if !c.exportsMetrics || !ok || c.cfg.Tuning.QueueLook < 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(c.cfg.Tuning.QueueLook)
		defer tick.Stop()
		for ctx.Err() == nil {
			c.readLengths(ctx, inspector)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		for name := range c.cfg.Queues {
			c.cfg.Metrics.ForgetQueue(name)
		}
	})
	return func() {
		cancel()
		looking.Wait()
	}
}

// readLengths writes the lengths of all configured queues to the metrics. If a length cannot be
// read within statsTimeout, it removes the queue from the metrics and logs that once. It returns
// early if ctx ends.
func (c *Consumer) readLengths(ctx context.Context, inspector broker.Inspector) {
	for name := range c.cfg.Queues {
		looking, cancel := context.WithTimeout(ctx, statsTimeout)
		s, err := inspector.Stats(looking, name)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			c.cfg.Metrics.ForgetQueue(name)
			c.warnOnce("look "+name, "the length of a queue cannot be read; this is logged once",
				slog.String(middleware.LogQueue, name), slog.Any("error", err))
		default:
			c.cfg.Metrics.SetQueue(name, s.Ready, s.Delayed, s.Dead)
		}
	}
}
