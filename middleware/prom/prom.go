// Package prom exports the metrics of a go-metrics registry to Prometheus. [Handler] returns a page
// to scrape. [NewCollector] returns a collector for a program's existing Prometheus registry.
//
// # Names
//
// Metrics of package middleware keep their names in the registry, with three changes. "_" replaces
// invalid characters, the unit is added at the end, and counts that never decrease get "_total". So
// "swarmiji.sent" is swarmiji_sent_tasks_total, and "swarmiji.runtime.us" is
// swarmiji_runtime_seconds.
//
// The metrics of queues have the label queue, whose values are the consumer's configured queues.
// Those of tasks have the label task. Its values are the names of handlers that have run, at most
// [middleware.MaxTaskNames], and "other" for the rest.
//
// # Other metrics
//
// Other metrics of the registry keep their names. Counters and gauges are gauges, because a counter
// of go-metrics may decrease. For meters, timers and sampling histograms only the count is
// exported, with "_total", because their sums and percentiles come from a sample. A
// [gometrics.Histogram] is exported completely. Health checks are not exported. If two metrics
// get the same name, only the one whose name comes first in the registry is exported.
//
// # Histograms
//
// Histograms have a bucket up to 63 microseconds, or 63 of another unit. Each further bucket
// doubles the bound, up to more than an hour. The bounds are bounds of the histogram's own buckets,
// so that all numbers are exact.
package prom

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metrics "github.com/rcrowley/go-metrics"

	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/middleware/gometrics"
)

// Handler returns an HTTP handler that exports the metrics of a registry, in the format that the
// scraper requests. It reads the metrics for each request. Safe for concurrent use. It does no
// authentication: do not make it public.
func Handler(r metrics.Registry) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewCollector(r)) // cannot fail: an unchecked collector has no conflicts
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// NewCollector returns a collector of all metrics that are in r when it collects. It is unchecked,
// because metrics may be added and removed. Safe for concurrent use.
func NewCollector(r metrics.Registry) prometheus.Collector {
	c := &collector{registry: r, known: make(map[string]middleware.Description)}
	for _, d := range middleware.Descriptions() {
		c.known[d.Name] = d
		if d.Label != "" {
			c.labelled = append(c.labelled, d)
		}
	}
	return c
}

// collector is the [prometheus.Collector] of a registry of go-metrics.
type collector struct {
	registry metrics.Registry
	known    map[string]middleware.Description // by name
	labelled []middleware.Description          // those in known whose name is a prefix
}

// Describe implements [prometheus.Collector]. It sends no description, which makes the collector
// unchecked.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector]: it sends each metric of the registry that can be
// exported, in the order of their names. If two metrics get the same name, it sends only the first.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	type entry struct {
		name  string
		value any
	}
	var all []entry
	c.registry.Each(func(name string, v any) { all = append(all, entry{name, v}) })
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	owner := make(map[string]string) // source of each exported name
	for _, e := range all {
		s := c.describe(e.name)
		m, name := s.metric(e.value)
		if m == nil {
			continue
		}
		if first, taken := owner[name]; taken && (first != s.source || s.label == "") {
			continue
		}
		owner[name] = s.source
		ch <- m
	}
}

// shown describes how a metric is exported.
type shown struct {
	middleware.Description
	source string // common source of all metrics with the exported name
	value  string // value of the label
	label  string // "": no label
}

// describe returns how the metric with this name in the registry is exported.
func (c *collector) describe(name string) shown {
	if d, ok := c.known[name]; ok && d.Label == "" {
		return shown{Description: d, source: name}
	}
	for _, d := range c.labelled {
		if value, ok := strings.CutPrefix(name, d.Name+"."); ok {
			return shown{Description: d, source: d.Name, value: value, label: d.Label}
		}
	}
	return shown{Description: middleware.Description{Name: name, Help: "Metric " + name + " of the program's registry."}, source: name}
}

// metric returns the Prometheus metric for a value of the registry, and its name; nil and "" if the
// value cannot be exported.
func (s *shown) metric(value any) (prometheus.Metric, string) {
	rising := s.Kind == middleware.Rising
	switch v := value.(type) {
	case metrics.Counter:
		return s.number(rising, float64(v.Count()))
	case metrics.Gauge:
		return s.number(false, float64(v.Value()))
	case metrics.GaugeFloat64:
		return s.number(false, v.Value())
	case gometrics.Histogram:
		return s.histogram(v.Histogram)
	case metrics.Histogram:
		return s.number(true, float64(v.Count()))
	case metrics.Meter:
		return s.number(true, float64(v.Count()))
	case metrics.Timer:
		return s.number(true, float64(v.Count()))
	}
	return nil, ""
}

// number returns a metric with the value v, and its name: a counter with "_total" if rising is
// true, else a gauge. Microseconds become seconds. It returns nil and "" if Prometheus refuses the
// metric.
func (s *shown) number(rising bool, v float64) (prometheus.Metric, string) {
	kind, name := prometheus.GaugeValue, s.name()
	if s.Unit == microseconds {
		v /= 1e6
	}
	if rising {
		kind, name = prometheus.CounterValue, name+"_total"
	}
	m, err := prometheus.NewConstMetric(s.desc(name), kind, v, s.values()...)
	if err != nil {
		return nil, ""
	}
	return m, name
}

// Bounds of the buckets are 2^n-1, for n from firstBound to lastBound.
const (
	firstBound = 6  // 63 microseconds
	lastBound  = 32 // 1 h 11 min
)

// histogram returns a Prometheus histogram of h, and its name. Its buckets are sums of those of h.
// Microseconds become seconds. It returns nil and "" if Prometheus refuses the metric.
func (s *shown) histogram(h *middleware.Histogram) (prometheus.Metric, string) {
	scale := 1.0
	if s.Unit == microseconds {
		scale = 1e6
	}
	bounds := make(map[float64]uint64, lastBound-firstBound+1)
	// read before the buckets, so that the mean is too small rather than too large
	sum := float64(h.Sum()) / scale
	n, next := uint64(0), firstBound
	below := func(value int64) { // sets the counts of all bounds below value
		for ; next <= lastBound && value > 1<<next-1; next++ {
			bounds[float64(int64(1)<<next-1)/scale] = n
		}
	}
	for top, count := range h.Buckets() {
		below(top)
		n += uint64(count)
	}
	below(math.MaxInt64)
	name := s.name()
	m, err := prometheus.NewConstHistogram(s.desc(name), n, sum, bounds, s.values()...)
	if err != nil {
		return nil, ""
	}
	return m, name
}

// desc returns the description of the metric for Prometheus, with its label if it has one.
func (s *shown) desc(name string) *prometheus.Desc {
	var labels []string
	if s.label != "" {
		labels = []string{s.label}
	}
	return prometheus.NewDesc(name, s.Help, labels, nil)
}

// values returns the value of the label, or nil for a metric without a label.
func (s *shown) values() []string {
	if s.label == "" {
		return nil
	}
	return []string{s.value}
}

// microseconds is a unit that is exported as seconds, as Prometheus requires.
const microseconds = "microseconds"

// name returns the metric's name for Prometheus, without "_total".
func (s *shown) name() string {
	name, unit := s.Name, s.Unit
	if unit == microseconds {
		name, unit = strings.TrimSuffix(name, ".us"), "seconds"
	}
	name = sanitize(name)
	if unit != "" && !strings.HasSuffix(name, "_"+unit) {
		name += "_" + unit
	}
	return name
}

// sanitize returns name with "_" in place of each character other than letters, digits and "_". A
// name that is empty or begins with a digit gets a leading "_".
func sanitize(name string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_':
			return r
		}
		return '_'
	}, name)
	if clean == "" || clean[0] >= '0' && clean[0] <= '9' {
		return "_" + clean
	}
	return clean
}
