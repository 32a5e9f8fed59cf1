package middleware

import (
	"strings"
	"sync"

	metrics "github.com/rcrowley/go-metrics"
)

// Metrics holds the metrics of producers and consumers, in a registry of the program. Several
// producers and consumers may share one Metrics. All fields are safe for concurrent use.
//
// Counters never decrease, except Active and Stuck. [Descriptions] returns the meaning of each
// metric for exporters.
type Metrics struct {
	// tasks confirmed by the broker: submissions, and tasks sent by a consumer
	Sent         metrics.Counter
	Received     metrics.Counter // deliveries received from the broker
	Started      metrics.Counter // started runs
	Succeeded    metrics.Counter // tasks that succeeded
	Failed       metrics.Counter // tasks that failed without another retry
	Retried      metrics.Counter // runs that ended with a retry
	Snoozed      metrics.Counter // runs that ended with a snooze
	Deferred     metrics.Counter // runs whose answer comes from outside
	Revoked      metrics.Counter // tasks skipped because they were revoked
	Expired      metrics.Counter // tasks skipped because they had expired
	Released     metrics.Counter // deliveries released, at a stop or after an error of the store
	Parked       metrics.Counter // tasks parked because no handler was registered
	DeadLettered metrics.Counter // messages moved to a dead-letter queue
	Crashes      metrics.Counter // starts during which the consumer's process crashed
	Rejected     metrics.Counter // results that were late, of another task, or without a receiver
	Dropped      metrics.Counter // events that could not be passed to the event bus

	BusDropped metrics.Gauge // events that the bus accepted and then dropped, at the last heartbeat

	Active  metrics.Counter // runs in progress
	Stuck   metrics.Counter // handlers that still run after their hard time limit
	Waiting metrics.Gauge   // tasks ready in the consumed queues, at the last check; see SetQueue

	Runtime *Histogram // run time of handlers, in microseconds
	// time from passing a delivery to the pool until its outcome is settled, in microseconds
	Pool *Histogram

	registry metrics.Registry
	looks    sync.Mutex // held by SetQueue and ForgetQueue
}

// Prefix begins the names of this module's metrics in a registry.
const Prefix = "swarmiji."

// Kind is the kind of a metric's values.
type Kind string

// Kinds of metrics.
const (
	Rising Kind = "rising" // a count that never decreases during the life of the process
	Level  Kind = "level"  // a number that increases and decreases
	Spread Kind = "spread" // a [*Histogram]
)

// Description describes a metric for exporters, because a registry has only names and values.
type Description struct {
	// name in the registry; if Label is set, a prefix that a dot and the label's value follow
	Name string
	Kind Kind
	Unit string // unit of the values, in the plural; "microseconds" for times
	Help string // one sentence
	// name of the label that distinguishes several metrics of this name; "": only one metric. The
	// configuration limits its values.
	Label string
}

// metric is the description of a field of Metrics, and a pointer to the field: a *metrics.Counter,
// *metrics.Gauge or **Histogram.
type metric struct {
	Description
	field any
}

// all returns all metrics of m with pointers to their fields.
func (m *Metrics) all() []metric {
	rising := func(name, unit, help string, c *metrics.Counter) metric {
		return metric{Description{Name: Prefix + name, Kind: Rising, Unit: unit, Help: help}, c}
	}
	level := func(name, unit, help string, field any) metric {
		return metric{Description{Name: Prefix + name, Kind: Level, Unit: unit, Help: help}, field}
	}
	spread := func(name, help string, h **Histogram) metric {
		return metric{Description{Name: Prefix + name, Kind: Spread, Unit: "microseconds", Help: help}, h}
	}
	return []metric{
		rising("sent", "tasks", "Tasks confirmed by the broker.", &m.Sent),
		rising("received", "deliveries", "Deliveries taken from the broker.", &m.Received),
		rising("started", "runs", "Started runs of handlers.", &m.Started),
		rising("succeeded", "tasks", "Tasks that succeeded.", &m.Succeeded),
		rising("failed", "tasks", "Tasks that failed without another retry.", &m.Failed),
		rising("retried", "runs", "Runs that ended with a retry.", &m.Retried),
		rising("snoozed", "runs", "Runs that ended with a snooze.", &m.Snoozed),
		rising("deferred", "runs", "Runs whose answer comes from outside.", &m.Deferred),
		rising("revoked", "tasks", "Tasks skipped because they were revoked.", &m.Revoked),
		rising("expired", "tasks", "Tasks skipped because they had expired.", &m.Expired),
		rising("released", "deliveries", "Deliveries released, at a stop or after an error of the store.", &m.Released),
		rising("parked", "tasks", "Tasks parked because no handler was registered.", &m.Parked),
		rising("buried", "messages", "Messages moved to a dead-letter queue.", &m.DeadLettered),
		rising("crashes", "deliveries", "Starts of tasks during which the consumer's process crashed.", &m.Crashes),
		rising("rejected", "results", "Results that were late, of another task, or without a receiver.", &m.Rejected),
		rising("events.dropped", "events", "Events that could not be passed to the event bus.", &m.Dropped),
		level("events.bus.dropped", "events", "Events that the bus accepted and then dropped, at the last heartbeat.", &m.BusDropped),
		level("active", "runs", "Runs of handlers in progress.", &m.Active),
		level("stuck", "handlers", "Handlers that still run after their hard time limit.", &m.Stuck),
		level("queue.length", "tasks", "Tasks ready in all consumed queues, at the last check.", &m.Waiting),
		spread("runtime.us", "Run time of handlers.", &m.Runtime),
		spread("pool.us", "Time from passing a delivery to the pool until its outcome is settled.", &m.Pool),
	}
}

// Names of the metrics of each queue, without the queue's name.
const (
	queueReady   = Prefix + "queue.ready"
	queueDelayed = Prefix + "queue.delayed"
	queueDead    = Prefix + "queue.dead"
)

// Descriptions returns a description of each metric that [NewMetrics] and [Metrics.SetQueue]
// register.
func Descriptions() []Description {
	fields := new(Metrics).all()
	ds := make([]Description, 0, len(fields)+3)
	for _, f := range fields {
		ds = append(ds, f.Description)
	}
	queue := func(name, help string) Description {
		return Description{Name: name, Kind: Level, Unit: "tasks", Help: help, Label: "queue"}
	}
	return append(ds,
		queue(queueReady, "Tasks ready in a consumed queue, at the last check."),
		queue(queueDelayed, "Delayed tasks of a consumed queue, at the last check."),
		queue(queueDead, "Tasks in the dead-letter queue of a consumed queue, at the last check."))
}

// NewMetrics returns Metrics whose metrics are registered in r under "swarmiji.". It uses existing
// metrics of the same name and type. Metrics whose name is taken by another type are not
// registered, but still count. With a nil r no metric is registered.
func NewMetrics(r metrics.Registry) *Metrics {
	if r == nil {
		r = metrics.NewRegistry()
	}
	m := &Metrics{registry: r}
	for _, f := range m.all() {
		switch field := f.field.(type) {
		case *metrics.Counter:
			*field = registered(r, f.Name, metrics.NewCounter())
		case *metrics.Gauge:
			*field = registered(r, f.Name, metrics.NewGauge())
		case **Histogram:
			*field = registered(r, f.Name, NewHistogram())
		}
	}
	return m
}

// registered returns the metric of this name and type in r. If the name is free, it registers fresh
// and returns it. If the name is taken by another type, it returns fresh.
func registered[T any](r metrics.Registry, name string, fresh T) T {
	if there, ok := r.GetOrRegister(name, fresh).(T); ok {
		return there
	}
	return fresh
}

// SetQueue sets the number of tasks of a queue that are ready, that are delayed, and that are in
// its dead-letter queue; -1 if unknown. Waiting becomes the number of ready tasks in all queues.
//
// A consumer with Metrics calls it if its broker can count. Each queue adds names to the registry,
// so the queues must come from a configuration.
func (m *Metrics) SetQueue(queue string, ready, delayed, dead int) {
	m.looks.Lock()
	defer m.looks.Unlock()
	for name, n := range map[string]int{queueReady: ready, queueDelayed: delayed, queueDead: dead} {
		if n < 0 {
			m.registry.Unregister(name + "." + queue)
			continue
		}
		registered(m.registry, name+"."+queue, metrics.NewGauge()).Update(int64(n))
	}
	m.sum()
}

// ForgetQueue removes the metrics of a queue, so that outdated numbers are not shown.
func (m *Metrics) ForgetQueue(queue string) {
	m.looks.Lock()
	defer m.looks.Unlock()
	for _, name := range []string{queueReady, queueDelayed, queueDead} {
		m.registry.Unregister(name + "." + queue)
	}
	m.sum()
}

// sum sets Waiting to the number of ready tasks in all queues. It includes queues of other Metrics
// in the same registry, which may add a prefix to the names.
func (m *Metrics) sum() {
	var sum int64
	m.registry.Each(func(name string, v any) {
		if g, ok := v.(metrics.Gauge); ok && strings.Contains(name, queueReady+".") {
			sum += g.Value()
		}
	})
	m.Waiting.Update(sum)
}
