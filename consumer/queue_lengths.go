package consumer

import (
	"context"
	"errors"
	"log/slog"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer/internal/intake"
	"github.com/swarmiji/swarmiji/middleware"
)

// watchLengths starts a goroutine that writes the lengths of the queues to the user's metrics now
// and every Tuning.QueueLook. If a length cannot be read, it removes the queue from the metrics and
// logs that once. It does nothing without user metrics, if the broker cannot report lengths, or if
// QueueLook is negative.
//
// stop ends the goroutine, which removes the lengths from the metrics, and waits for it. The end of
// ctx ends it, too.
func (c *Consumer) watchLengths(ctx context.Context) (stop func()) {
	inspector, ok := capability.As[broker.Inspector](c.cfg.Broker)
	if !c.exportsMetrics || !ok || c.cfg.Tuning.QueueLook < 0 {
		return func() {}
	}
	l := intake.Lengths{Broker: inspector, Queues: c.queues.Names, Every: c.cfg.Tuning.QueueLook}
	l.Read = func(name string, s broker.Stats, err error) {
		if err == nil {
			c.cfg.Metrics.SetQueue(name, s.Ready, s.Delayed, s.Dead)
			c.cfg.Metrics.SetOldest(name, s.Ready, s.Oldest)
			return
		}
		c.cfg.Metrics.ForgetQueue(name)
		if ctx.Err() == nil && !errors.Is(err, context.Canceled) {
			c.warnOnce("look "+name, "the length of a queue cannot be read; this is logged once",
				slog.String(middleware.LogQueue, name), slog.Any("error", err))
		}
	}
	return l.Start(ctx)
}
