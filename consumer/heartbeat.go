package consumer

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/report"
)

// newReport makes what sends this consumer's events; nil when there is no bus.
func (c *Consumer) newReport() *report.Reporter {
	m := c.cfg.Metrics
	return report.New(report.Config{
		Bus: c.cfg.Events, Report: c.cfg.Report, Role: events.RoleConsumer,
		Counts: func() report.Counts {
			return report.Counts{
				Active: c.running.Len(), Reserved: c.waiting(), Stuck: int(c.stuck.total.Load()), Processed: c.running.Ended(),
			}
		},
		Lost:     m.Dropped.Inc,
		BusLost:  func(total uint64) { m.BusDropped.Update(int64(total)) },
		Logger:   c.cfg.Logger,
		Describe: c.codec.Preview,
	})
}

// reportGrace bounds what a stop waits for its last events.
const reportGrace = time.Second

// endReport sends worker-offline.
func (c *Consumer) endReport(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportGrace)
	defer cancel()
	c.report.Stop(ctx)
}
