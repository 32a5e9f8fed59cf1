package producer

import (
	"reflect"

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
