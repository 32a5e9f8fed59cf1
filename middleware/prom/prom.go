// Package prom shows the metrics of a go-metrics registry to Prometheus: [Handler] is a page to scrape, [NewCollector] goes
// into a Prometheus registry that a program has already.
//
// # Names
//
// A metric of package middleware is called as in the registry, with "_" for what a name may not hold, its unit at the end,
// and "_total" after a count that never falls: "swarmiji.sent" is swarmiji_sent_tasks_total, "swarmiji.runtime.us" is
// swarmiji_runtime_seconds. The lengths of queues have the label queue, whose values are the consumer's configured queues;
// there is no other label. Names of tasks are none, since anybody who may submit could make new ones.
//
// Other metrics of the registry keep their names. Counters and gauges are gauges, since a counter of go-metrics may fall. Of
// meters, timers and sampling histograms only the count is shown, with "_total", because their sums and percentiles are
// those of a sample; a [*middleware.Histogram] is shown whole. Of two metrics whose names become the same, the one whose
// name in the registry comes first is shown. Health checks are not.
//
// Histograms have a bucket up to 63 microseconds (or whatever the unit is) and one for each doubling from there to more than
// an hour. Their bounds are those of the histogram's own buckets, so that every number is exact.
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
)

// Handler answers a scrape with the metrics of a registry and nothing else, in the format that the scraper asks for. It
// reads them when it is asked, and is safe for concurrent use. It asks nobody who he is: put it where only friends come.
func Handler(r metrics.Registry) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewCollector(r)) // it cannot fail: an unchecked collector is like no other
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// NewCollector returns a collector of all metrics that are in r when it is asked. It is unchecked, because they may come and
// go, and safe for concurrent use.
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

type collector struct {
	registry metrics.Registry
	known    map[string]middleware.Description // by name
	labelled []middleware.Description          // those of known that are prefixes
}

// Describe implements [prometheus.Collector]. It says nothing: that makes the collector unchecked.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	type entry struct {
		name  string
		value any
	}
	var all []entry
	c.registry.Each(func(name string, v any) { all = append(all, entry{name, v}) })
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	owner := make(map[string]string) // of each name: what of the registry has it
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

// shown is how a metric is shown.
type shown struct {
	middleware.Description
	source string // that all metrics of the shown name have in common
	value  string // of the label
	label  string // "" for none
}

// describe finds out what is known of a metric.
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

// metric makes the metric of a value and returns its name too; nil if it cannot be shown.
func (s *shown) metric(value any) (prometheus.Metric, string) {
	rising := s.Kind == middleware.Rising
	switch v := value.(type) {
	case metrics.Counter:
		return s.number(rising, float64(v.Count()))
	case metrics.Gauge:
		return s.number(false, float64(v.Value()))
	case metrics.GaugeFloat64:
		return s.number(false, v.Value())
	case *middleware.Histogram:
		return s.histogram(v)
	case metrics.Histogram:
		return s.number(true, float64(v.Count()))
	case metrics.Meter:
		return s.number(true, float64(v.Count()))
	case metrics.Timer:
		return s.number(true, float64(v.Count()))
	}
	return nil, ""
}

func (s *shown) number(rising bool, v float64) (prometheus.Metric, string) {
	kind, name := prometheus.GaugeValue, s.name()
	if rising {
		kind, name = prometheus.CounterValue, name+"_total"
	}
	m, err := prometheus.NewConstMetric(s.desc(name), kind, v, s.values()...)
	if err != nil {
		return nil, ""
	}
	return m, name
}

// The bounds of the buckets are 2^n-1 for n from the first to the last.
const (
	firstBound = 6  // 63 microseconds
	lastBound  = 32 // 1 h 11 min
)

// histogram makes a histogram whose buckets are sums of the histogram's own.
func (s *shown) histogram(h *middleware.Histogram) (prometheus.Metric, string) {
	scale := 1.0
	if s.Unit == microseconds {
		scale = 1e6
	}
	bounds := make(map[float64]uint64, lastBound-firstBound+1)
	sum := float64(h.Sum()) / scale // before the buckets: a mean that is a little too small for a moment rather than too large
	n, next := uint64(0), firstBound
	below := func(value int64) { // notes the counts of all bounds below value
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

func (s *shown) desc(name string) *prometheus.Desc {
	var labels []string
	if s.label != "" {
		labels = []string{s.label}
	}
	return prometheus.NewDesc(name, s.Help, labels, nil)
}

func (s *shown) values() []string {
	if s.label == "" {
		return nil
	}
	return []string{s.value}
}

// microseconds is a unit that Prometheus does not want: times are seconds there.
const microseconds = "microseconds"

// name is the metric's name for Prometheus, without "_total".
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

// sanitize makes a name of letters, digits and "_".
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
