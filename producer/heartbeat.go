package producer

import (
	"context"
	"reflect"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/report"
	"github.com/swarmiji/swarmiji/task"
)

// newReport returns the sender of this producer's events and heartbeats, or nil without
// Config.Events. It starts nothing.
func (p *Producer) newReport() *report.Reporter {
	m := p.cfg.Metrics
	return report.New(report.Config{
		Bus: p.cfg.Events, Report: p.cfg.Report, Role: events.RoleProducer,
		Counts:   func() report.Counts { return report.Counts{Processed: p.sent.Load()} },
		Lost:     m.Dropped.Inc,
		BusLost:  func(total uint64) { m.BusDropped.Update(int64(total)) },
		Logger:   p.cfg.Logger,
		Describe: p.codec.Preview,
	})
}

// reportGrace limits how long Close waits until its last events are sent.
const reportGrace = time.Second

// endReport sends the event worker-offline and stops the report. It waits for at most reportGrace.
func (p *Producer) endReport(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reportGrace)
	defer cancel()
	p.report.Stop(ctx)
}

// hasSecrets reports whether the type of args has secret fields, which events must not show. It
// remembers the answer for each type. It returns false for nil.
func (p *Producer) hasSecrets(args any) bool {
	t := reflect.TypeOf(args)
	if t == nil {
		return false
	}
	if known, ok := p.secrets.Load(t); ok {
		return known.(bool)
	}
	found := task.HasSecrets(t)
	p.secrets.Store(t, found)
	return found
}
