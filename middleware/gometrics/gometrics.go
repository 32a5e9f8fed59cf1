// Package gometrics shows the metrics of producers and consumers in a registry of go-metrics, where
// any exporter of go-metrics can read them.
package gometrics

import (
	metrics "github.com/rcrowley/go-metrics"

	"github.com/swarmiji/swarmiji/middleware"
)

// NewMetrics returns the Metrics whose values r shows, under the names in
// [middleware.Descriptions]. Each call with the same r returns the same Metrics, unless another
// type has the name "swarmiji.sent". r must not be nil. Safe for concurrent use.
//
// A metric whose name is taken by another type is not shown, but still counts. The lengths of
// queues are added and removed as the consumers report them. The metrics of each queue and of each
// task's name are added when the first task has run.
func NewMetrics(r metrics.Registry) *middleware.Metrics {
	m := &middleware.Metrics{
		OnQueue: func(queue string, ready, delayed, dead int) {
			setLength(r, middleware.QueueReady+"."+queue, ready)
			setLength(r, middleware.QueueDelayed+"."+queue, delayed)
			setLength(r, middleware.QueueDead+"."+queue, dead)
		},
		OnLabel: func(d middleware.Description, value string, metric any) {
			switch f := metric.(type) {
			case *middleware.Gauge:
				r.GetOrRegister(d.Name+"."+value, gauge{f})
			case *middleware.Histogram:
				r.GetOrRegister(d.Name+"."+value, Histogram{f})
			}
		},
	}
	for d, field := range m.All() {
		switch f := field.(type) {
		case *middleware.Counter:
			if c, ok := r.GetOrRegister(d.Name, counter{f, m}).(counter); ok && c.of != m {
				return c.of
			}
		case *middleware.Gauge:
			r.GetOrRegister(d.Name, gauge{f})
		case *middleware.Histogram:
			r.GetOrRegister(d.Name, Histogram{f})
		}
	}
	return m
}

// setLength sets the gauge with this name in r to n, and adds it if it is missing. If n is
// negative, it removes the metric with this name instead. It changes nothing if n is not negative
// and a metric of another type has the name.
func setLength(r metrics.Registry, name string, n int) {
	if n < 0 {
		r.Unregister(name)
	} else if g, ok := r.GetOrRegister(name, metrics.NewGauge).(metrics.Gauge); ok {
		g.Update(int64(n))
	}
}

// counter shows a [middleware.Counter] as a [metrics.Counter].
type counter struct {
	*middleware.Counter
	of *middleware.Metrics // has the counter as a field
}

// Clear sets the value to 0.
func (c counter) Clear() { c.Dec(c.Count()) }

// Snapshot returns a copy of the present value, which does not change.
func (c counter) Snapshot() metrics.Counter { return metrics.CounterSnapshot(c.Count()) }

// gauge shows a [middleware.Gauge] as a [metrics.Gauge].
type gauge struct{ *middleware.Gauge }

// Snapshot returns a copy of the present value, which does not change.
func (g gauge) Snapshot() metrics.Gauge { return metrics.GaugeSnapshot(g.Value()) }

// Histogram is a [metrics.Histogram] with the values of a [middleware.Histogram]. Programs may
// register their own.
type Histogram struct{ *middleware.Histogram }

// Sample returns an empty sample, because the histogram keeps no values.
func (h Histogram) Sample() metrics.Sample { return metrics.NilSample{} }

// Snapshot returns a copy of the present values, which does not change. It may contain parts of
// concurrent updates.
func (h Histogram) Snapshot() metrics.Histogram { return Histogram{h.Histogram.Snapshot()} }
