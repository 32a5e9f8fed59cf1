package consumer

import (
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
