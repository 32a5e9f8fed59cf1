package middleware

import (
	"strings"
	"sync"

	metrics "github.com/rcrowley/go-metrics"
)

// Metrics are the numbers a producer and a consumer keep, in a registry of the user's. One Metrics may serve both; all its
// fields are safe for concurrent use. Counters only rise, but for Active and Stuck, which go both ways. What each of them
// means to an exporter [Descriptions] tells.
type Metrics struct {
	Sent      metrics.Counter // tasks confirmed by the broker: submissions, and what a consumer sends after a task
	Received  metrics.Counter // deliveries taken from the broker
	Started   metrics.Counter // runs begun
	Succeeded metrics.Counter // tasks that ended well
	Failed    metrics.Counter // tasks that failed for good
	Retried   metrics.Counter // runs that ended with a retry
	Snoozed   metrics.Counter // runs that ended with "not now"
	Deferred  metrics.Counter // runs whose answer is to come from outside
	Revoked   metrics.Counter // tasks skipped because they were revoked
	Expired   metrics.Counter // tasks skipped because their time had passed
	Released  metrics.Counter // deliveries given back, at a stop or after a trouble with the store
	Parked    metrics.Counter // tasks put aside because no handler was registered
	Buried    metrics.Counter // messages moved to the dead letters
	Crashes   metrics.Counter // starts that ended the process of their consumer
	Rejected  metrics.Counter // results that came too late, claimed another task or went to nobody
	Dropped   metrics.Counter // events that could not be handed over

	BusDropped metrics.Gauge // events that the bus took and then had to drop, as of the last heartbeat

	Active  metrics.Counter // runs going on now
	Stuck   metrics.Counter // handlers that outlived their hard time limit and still run
	Waiting metrics.Gauge   // tasks ready in the consumed queues, as of the last look; see SetQueue

	Runtime *Histogram // microseconds a handler took
	Pool    *Histogram // microseconds from the hand-over to the pool until the outcome was settled

	registry metrics.Registry
	looks    sync.Mutex // held by SetQueue and ForgetQueue
}

// Prefix is how the names of this module's metrics begin in a registry.
const Prefix = "swarmiji."

// Kind is what the values of a metric are like.
type Kind string

// The kinds of metrics.
const (
	Rising Kind = "rising" // a count that never falls while the process lives
	Level  Kind = "level"  // a number that goes both ways
	Spread Kind = "spread" // a [*Histogram]
)

// Description tells what a metric is: a registry has names and values alone.
type Description struct {
	Name  string // in the registry; where Label is set, a prefix: what follows it and a dot is the label's value
	Kind  Kind
	Unit  string // of what is counted or measured, in the plural; "microseconds" of times
	Help  string // one sentence
	Label string // "" for one metric of the name, else what tells several apart; its values are bounded by the configuration
}

// metric is the description of a field of Metrics, and the field: a *metrics.Counter, *metrics.Gauge or **Histogram.
type metric struct {
	Description
	field any
}

// all lists the fields of m.
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
		rising("started", "runs", "Runs of handlers begun.", &m.Started),
		rising("succeeded", "tasks", "Tasks that ended well.", &m.Succeeded),
		rising("failed", "tasks", "Tasks that failed for good.", &m.Failed),
		rising("retried", "runs", "Runs that ended with a retry.", &m.Retried),
		rising("snoozed", "runs", "Runs that ended with a snooze.", &m.Snoozed),
		rising("deferred", "runs", "Runs whose answer is to come from outside.", &m.Deferred),
		rising("revoked", "tasks", "Tasks skipped because they were revoked.", &m.Revoked),
		rising("expired", "tasks", "Tasks skipped because their time had passed.", &m.Expired),
		rising("released", "deliveries", "Deliveries given back, at a stop or after a trouble with the store.", &m.Released),
		rising("parked", "tasks", "Tasks put aside because no handler was registered.", &m.Parked),
		rising("buried", "messages", "Messages moved to the dead letters.", &m.Buried),
		rising("crashes", "deliveries", "Starts of tasks that ended the process of their consumer.", &m.Crashes),
		rising("rejected", "results", "Results that came too late, claimed another task or went to nobody.", &m.Rejected),
		rising("events.dropped", "events", "Events that could not be handed to the event bus.", &m.Dropped),
		level("events.bus.dropped", "events", "Events that the bus took and then had to drop, as of the last heartbeat.", &m.BusDropped),
		level("active", "runs", "Runs of handlers going on now.", &m.Active),
		level("stuck", "handlers", "Handlers that outlived their hard time limit and still run.", &m.Stuck),
		level("queue.length", "tasks", "Tasks ready in all consumed queues, as of the last look.", &m.Waiting),
		spread("runtime.us", "Time a handler took.", &m.Runtime),
		spread("pool.us", "Time from a delivery's hand-over to the pool until its outcome was settled.", &m.Pool),
	}
}

// The names of the metrics of each queue, without the queue.
const (
	queueReady   = Prefix + "queue.ready"
	queueDelayed = Prefix + "queue.delayed"
	queueDead    = Prefix + "queue.dead"
)

// Descriptions returns what there is to know about every metric that [NewMetrics] and SetQueue register.
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
		queue(queueReady, "Tasks ready in a consumed queue, as of the last look."),
		queue(queueDelayed, "Tasks of a consumed queue that wait for their time, as of the last look."),
		queue(queueDead, "Dead letters of a consumed queue, as of the last look."))
}

// NewMetrics registers the metrics under "swarmiji." in r, or uses those that are there already. A nil r gives metrics that
// are counted and not registered. A name that is taken by a metric of another type is counted and not registered.
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

// registered returns what r has under name, where that is of the type, else fresh, which is registered if the name was free.
func registered[T any](r metrics.Registry, name string, fresh T) T {
	if there, ok := r.GetOrRegister(name, fresh).(T); ok {
		return there
	}
	return fresh
}

// SetQueue notes how many tasks of a queue are ready, how many wait for their time, and how many are dead; -1 is for what
// nobody can tell. Waiting becomes the sum of what is ready in all queues that were set. A consumer that is given Metrics
// and whose broker can tell does it by itself. Queues must come from a configuration, since each makes names in the registry.
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

// ForgetQueue removes what SetQueue has noted of a queue: a number that nobody looks after any more is worse than none.
func (m *Metrics) ForgetQueue(queue string) {
	m.looks.Lock()
	defer m.looks.Unlock()
	for _, name := range []string{queueReady, queueDelayed, queueDead} {
		m.registry.Unregister(name + "." + queue)
	}
	m.sum()
}

// sum adds up what is ready, also in the queues of other Metrics over the same registry, which may have a prefix of its own.
func (m *Metrics) sum() {
	var sum int64
	m.registry.Each(func(name string, v any) {
		if g, ok := v.(metrics.Gauge); ok && strings.Contains(name, queueReady+".") {
			sum += g.Value()
		}
	})
	m.Waiting.Update(sum)
}
