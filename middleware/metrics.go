package middleware

import (
	metrics "github.com/rcrowley/go-metrics"
)

// Metrics are the numbers a producer and a consumer keep, in a registry of the user's. One Metrics may serve both; all its
// fields are safe for concurrent use. Counters only rise, Active and Stuck go both ways.
type Metrics struct {
	Sent      metrics.Counter // tasks confirmed by the broker
	Received  metrics.Counter // deliveries taken from the broker
	Started   metrics.Counter // runs begun
	Succeeded metrics.Counter // tasks that ended well
	Failed    metrics.Counter // tasks that failed for good
	Retried   metrics.Counter // runs that ended with a retry
	Snoozed   metrics.Counter // runs that ended with "not now"
	Revoked   metrics.Counter // tasks skipped because they were revoked
	Expired   metrics.Counter // tasks skipped because their time had passed
	Released  metrics.Counter // deliveries given back, at a stop or after a trouble with the store
	Parked    metrics.Counter // tasks put aside because no handler was registered
	Buried    metrics.Counter // messages moved to the dead letters
	Crashes   metrics.Counter // deliveries that had been held by a consumer that died
	Rejected  metrics.Counter // results that came too late, claimed another task or went to nobody
	Dropped   metrics.Counter // events that could not be handed over

	Active  metrics.Counter // runs going on now
	Stuck   metrics.Counter // handlers that outlived their hard time limit and still run
	Waiting metrics.Gauge   // tasks ready in the consumed queues, as of the last look of whoever sets it

	Runtime *Histogram // microseconds a handler took
	Pool    *Histogram // microseconds from the hand-over to the pool until the outcome was settled
}

// NewMetrics registers the metrics under "swarmiji." in r, or uses those that are there already. A nil r gives metrics that
// are counted and not registered.
func NewMetrics(r metrics.Registry) *Metrics {
	if r == nil {
		r = metrics.NewRegistry()
	}
	counter := func(name string) metrics.Counter { return metrics.GetOrRegisterCounter("swarmiji."+name, r) }
	histogram := func(name string) *Histogram {
		fresh := NewHistogram()
		if h, ok := r.GetOrRegister("swarmiji."+name, fresh).(*Histogram); ok {
			return h
		}
		return fresh // the name is taken by something else: counted, not registered
	}
	return &Metrics{
		Sent: counter("sent"), Received: counter("received"), Started: counter("started"), Succeeded: counter("succeeded"),
		Failed: counter("failed"), Retried: counter("retried"), Snoozed: counter("snoozed"), Revoked: counter("revoked"),
		Expired: counter("expired"), Released: counter("released"), Parked: counter("parked"), Buried: counter("buried"),
		Crashes: counter("crashes"), Rejected: counter("rejected"), Dropped: counter("events.dropped"),
		Active: counter("active"), Stuck: counter("stuck"), Waiting: metrics.GetOrRegisterGauge("swarmiji.queue.length", r),
		Runtime: histogram("runtime.us"), Pool: histogram("pool.us"),
	}
}
