package middleware

import (
	"iter"
	"sync"
	"sync/atomic"
)

// Counter is an integer that is added to. The zero value is 0 and ready for use. Safe for
// concurrent use. It must not be copied.
type Counter struct{ n atomic.Int64 }

// Inc adds n.
func (c *Counter) Inc(n int64) { c.n.Add(n) }

// Dec subtracts n.
func (c *Counter) Dec(n int64) { c.n.Add(-n) }

// Count returns the value.
func (c *Counter) Count() int64 { return c.n.Load() }

// Gauge is an integer that is set. The zero value is 0 and ready for use. Safe for concurrent use.
// It must not be copied.
type Gauge struct{ n atomic.Int64 }

// Update sets the value.
func (g *Gauge) Update(v int64) { g.n.Store(v) }

// Value returns the value.
func (g *Gauge) Value() int64 { return g.n.Load() }

// Metrics holds the metrics of producers, consumers and relays of an outbox. Several of them may
// share one Metrics. The zero value is ready for use, and all fields but OnQueue and OnLabel are
// safe for concurrent use. It must not be copied.
//
// Counters never decrease, except Active and Stuck. [Metrics.All] returns each metric with its
// meaning, for exporters. Package middleware/gometrics shows them in a registry of go-metrics, and
// middleware/prom to Prometheus.
type Metrics struct {
	// tasks confirmed by the broker: submissions, and tasks sent by a consumer
	Sent         Counter
	Received     Counter // deliveries received from the broker
	Started      Counter // started runs
	Succeeded    Counter // tasks that succeeded
	Failed       Counter // tasks that failed without another retry
	Retried      Counter // runs that ended with a retry
	Snoozed      Counter // runs that ended with a snooze
	Deferred     Counter // runs whose answer comes from outside
	Revoked      Counter // tasks skipped because they were revoked
	Expired      Counter // tasks skipped because they had expired
	Released     Counter // deliveries released, at a stop or after an error of the store
	Parked       Counter // tasks parked because no handler was registered
	DeadLettered Counter // messages moved to a dead-letter queue
	Crashes      Counter // starts during which the consumer's process crashed
	Rejected     Counter // results that were late, of another task, or without a receiver
	Dropped      Counter // events that could not be passed to the event bus

	BusDropped Gauge // events that the bus accepted and then dropped, at the last heartbeat

	Active  Counter // runs in progress
	Stuck   Counter // handlers that still run after their hard time limit
	Waiting Gauge   // tasks ready in the consumed queues, at the last check; see SetQueue

	Runtime Histogram // run time of handlers, in microseconds
	// time from passing a delivery to the pool until its outcome is settled, in microseconds
	Pool Histogram

	OutboxSent    Counter // messages of an outbox that the broker has confirmed
	OutboxFailed  Counter // publishes of messages of an outbox that failed and are repeated
	OutboxWaiting Gauge   // messages of the outbox that wait, at the last check; -1: unknown
	OutboxOldest  Gauge   // age of the oldest of them, in seconds; -1: unknown
	OutboxDead    Gauge   // dead messages of the outbox, at the last check; -1: unknown
	OutboxRelays  Gauge   // live relays of the outbox, at the last check; -1: unknown

	// OnQueue receives the numbers of each SetQueue, and -1 three times for ForgetQueue. Calls run one
	// after the other. nil: the lengths are shown in Waiting only. Set it before the first SetQueue.
	OnQueue func(queue string, ready, delayed, dead int)

	// OnLabel receives the metrics of queues and of tasks when the first value of each is recorded,
	// each one once. d is the description of the name, and value is the label's value. metric is a
	// [*Histogram] or a [*Gauge]. Set it before the first run. nil: no call.
	OnLabel func(d Description, value string, metric any)

	mu    sync.Mutex     // held by SetQueue, also while it calls OnQueue
	ready map[string]int // ready tasks of each queue whose length is known

	times times
}

// Prefix begins the names of this module's metrics.
const Prefix = "swarmiji."

// Kind is the kind of a metric's values.
type Kind string

// Kinds of metrics.
const (
	Rising Kind = "rising" // a count that never decreases during the life of the process
	Level  Kind = "level"  // a number that increases and decreases
	Spread Kind = "spread" // the values of a [*Histogram]
)

// Description describes a metric for exporters.
type Description struct {
	// name, such as "swarmiji.sent"; if Label is set, a prefix that a dot and the label's value follow
	Name string
	Kind Kind
	Unit string // unit of the values, in the plural; "microseconds" for times
	Help string // one sentence
	// name of the label that distinguishes several metrics of this name; "": only one metric. The
	// configuration limits its values.
	Label string
}

// All iterates over the descriptions of all metrics of m. The second value is a pointer to the
// metric's field: a [*Counter], a [*Gauge] or a [*Histogram]. Those of single queues and tasks are
// not among them; see OnQueue and OnLabel.
func (m *Metrics) All() iter.Seq2[Description, any] {
	metrics := []struct {
		name  string
		kind  Kind
		unit  string
		help  string
		field any
	}{
		{"sent", Rising, "tasks", "Tasks confirmed by the broker.", &m.Sent},
		{"received", Rising, "deliveries", "Deliveries taken from the broker.", &m.Received},
		{"started", Rising, "runs", "Started runs of handlers.", &m.Started},
		{"succeeded", Rising, "tasks", "Tasks that succeeded.", &m.Succeeded},
		{"failed", Rising, "tasks", "Tasks that failed without another retry.", &m.Failed},
		{"retried", Rising, "runs", "Runs that ended with a retry.", &m.Retried},
		{"snoozed", Rising, "runs", "Runs that ended with a snooze.", &m.Snoozed},
		{"deferred", Rising, "runs", "Runs whose answer comes from outside.", &m.Deferred},
		{"revoked", Rising, "tasks", "Tasks skipped because they were revoked.", &m.Revoked},
		{"expired", Rising, "tasks", "Tasks skipped because they had expired.", &m.Expired},
		{"released", Rising, "deliveries", "Deliveries released, at a stop or after an error of the store.", &m.Released},
		{"parked", Rising, "tasks", "Tasks parked because no handler was registered.", &m.Parked},
		{"buried", Rising, "messages", "Messages moved to a dead-letter queue.", &m.DeadLettered},
		{"crashes", Rising, "deliveries", "Starts of tasks during which the consumer's process crashed.", &m.Crashes},
		{"rejected", Rising, "results", "Results that were late, of another task, or without a receiver.", &m.Rejected},
		{"events.dropped", Rising, "events", "Events that could not be passed to the event bus.", &m.Dropped},
		{"events.bus.dropped", Level, "events", "Events that the bus accepted and then dropped, at the last heartbeat.", &m.BusDropped},
		{"active", Level, "runs", "Runs of handlers in progress.", &m.Active},
		{"stuck", Level, "handlers", "Handlers that still run after their hard time limit.", &m.Stuck},
		{"queue.length", Level, "tasks", "Tasks ready in all consumed queues, at the last check.", &m.Waiting},
		{"outbox.sent", Rising, "messages", "Messages of an outbox that the broker has confirmed.", &m.OutboxSent},
		{"outbox.failed", Rising, "publishes", "Publishes of messages of an outbox that failed and are repeated.", &m.OutboxFailed},
		{"outbox.waiting", Level, "messages", "Messages of the outbox that wait, at the relay's last check; -1: unknown.", &m.OutboxWaiting},
		{"outbox.oldest", Level, "seconds", "Age of the oldest waiting message of the outbox, at the relay's last check; -1: unknown.", &m.OutboxOldest},
		{"outbox.dead", Level, "messages", "Dead messages of the outbox, at the relay's last check; -1: unknown.", &m.OutboxDead},
		{"outbox.relays", Level, "relays", "Live relays of the outbox, at the relay's last check; -1: unknown.", &m.OutboxRelays},
		{"runtime.us", Spread, "microseconds", "Run time of handlers.", &m.Runtime},
		{"pool.us", Spread, "microseconds", "Time from passing a delivery to the pool until its outcome is settled.", &m.Pool},
	}
	return func(yield func(Description, any) bool) {
		for _, f := range metrics {
			if !yield(Description{Name: Prefix + f.name, Kind: f.kind, Unit: f.unit, Help: f.help}, f.field) {
				return
			}
		}
	}
}

// Names of the metrics of each queue. A dot and the queue's name follow.
const (
	QueueReady   = Prefix + "queue.ready"
	QueueDelayed = Prefix + "queue.delayed"
	QueueDead    = Prefix + "queue.dead"
)

// Descriptions returns a description of each metric in [Metrics.All], and of the metrics of single
// queues and tasks.
func Descriptions() []Description {
	var ds []Description
	for d := range new(Metrics).All() {
		ds = append(ds, d)
	}
	queue := func(name, help string) Description {
		return Description{Name: name, Kind: Level, Unit: "tasks", Help: help, Label: "queue"}
	}
	ds = append(ds, labelled...)
	return append(ds,
		queue(QueueReady, "Tasks ready in a consumed queue, at the last check."),
		queue(QueueDelayed, "Delayed tasks of a consumed queue, at the last check."),
		queue(QueueDead, "Tasks in the dead-letter queue of a consumed queue, at the last check."))
}

// SetQueue sets the number of tasks of a queue that are ready, that are delayed, and that are in
// its dead-letter queue; -1 if unknown. It passes them to OnQueue. Waiting becomes the number of
// ready tasks in all queues. It takes m.mu. Safe for concurrent use.
//
// A consumer with Metrics calls it if its broker can count. Exporters keep a name for each queue,
// so the queues must come from a configuration.
func (m *Metrics) SetQueue(queue string, ready, delayed, dead int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ready == nil {
		m.ready = make(map[string]int)
	}
	m.ready[queue] = ready
	if ready < 0 {
		delete(m.ready, queue)
	}
	sum := 0
	for _, n := range m.ready {
		sum += n
	}
	m.Waiting.Update(int64(sum))
	if m.OnQueue != nil {
		m.OnQueue(queue, ready, delayed, dead)
	}
}

// ForgetQueue makes all numbers of a queue unknown, so that outdated ones are not shown. See
// [Metrics.SetQueue].
func (m *Metrics) ForgetQueue(queue string) { m.SetQueue(queue, -1, -1, -1) }
