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

// lookTimeout bounds one look at the length of a queue.
const lookTimeout = 5 * time.Second

// watchLengths keeps the lengths of the queues in the user's metrics, until what it returns is called. It does nothing
// without metrics, or where the broker cannot tell.
func (c *Consumer) watchLengths(ctx context.Context) (stop func()) {
	inspector, ok := capability.As[broker.Inspector](c.cfg.Broker)
	if !c.measured || !ok || c.cfg.Tuning.QueueLook < 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(c.cfg.Tuning.QueueLook)
		defer tick.Stop()
		for ctx.Err() == nil {
			c.lookAtQueues(ctx, inspector)
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

func (c *Consumer) lookAtQueues(ctx context.Context, inspector broker.Inspector) {
	for name := range c.cfg.Queues {
		looking, cancel := context.WithTimeout(ctx, lookTimeout)
		s, err := inspector.Stats(looking, name)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			c.cfg.Metrics.ForgetQueue(name)
			c.warnOnce("look "+name, "the length of a queue is not known now; this is said once",
				slog.String(middleware.LogQueue, name), slog.Any("error", err))
		default:
			c.cfg.Metrics.SetQueue(name, s.Ready, s.Delayed, s.Dead)
		}
	}
}
