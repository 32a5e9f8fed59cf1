package consumer

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/report"
)

// newReport returns the sender of this consumer's events and heartbeats, or nil without
// Config.Events. It starts nothing.
func (c *Consumer) newReport() *report.Reporter {
	m := c.cfg.Metrics
	return report.New(report.Config{
		Bus: c.cfg.Events, Report: c.cfg.Report, Role: events.RoleConsumer,
		Counts: func() report.Counts {
			return report.Counts{
				Active: c.running.Len(), Reserved: c.waiting(), Stuck: int(c.stuck.Total()), Processed: c.running.Ended(), Queues: c.queues.Names(),
			}
		},
		Lost:     m.Dropped.Inc,
		BusLost:  func(total uint64) { m.BusDropped.Update(int64(total)) },
		Logger:   c.cfg.Logger,
		Describe: c.codec.Preview,
	})
}

// reportGrace limits how long a stop waits until its last events are sent.
const reportGrace = time.Second

// endReport sends the event worker-offline and stops the report. It waits for at most reportGrace,
// also if ctx has ended.
func (c *Consumer) endReport(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportGrace)
	defer cancel()
	c.report.Stop(ctx)
}
