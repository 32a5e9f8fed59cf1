package events

import "time"

// Report configures what a node, a producer or a consumer, reports about itself and its tasks. The
// zero value is usable.
type Report struct {
	// NodeID names the node in events and records. It must be unique. Default: a name of host,
	// process and a random part.
	NodeID string
	// HeartbeatEvery is the time between heartbeats (worker-heartbeat).
	//
	//   - worker-online comes before: with a producer's first submission, with a consumer's Run.
	//   - worker-offline comes last: in a producer's Close, at the end of a consumer's Run.
	//
	// Default: 2 s. Negative: no events about the node. Less than 10 ms is refused. Nothing is sent
	// without a bus.
	HeartbeatEvery time.Duration
	// HeartbeatFields returns further fields of each heartbeat, such as a version or a zone. Fields
	// with the name of a standard field are left out. It runs beside the tasks, one call at a time,
	// and a heartbeat waits for it. nil: none.
	HeartbeatFields func() map[string]any
	// Payloads puts previews of arguments and results, at most 1 KiB, into events. False: only
	// their type and size, since they may hold secrets. With a Sealer a consumer leaves out the
	// texts of errors, too.
	//
	// These payloads are never shown:
	//   - those of types with fields tagged `task:"secret"`;
	//   - those of members of groups, at the producer;
	//   - those of tasks without a handler, at the consumer.
	Payloads bool
	// Preview makes these previews instead. It runs for every task, so it must be quick. After a
	// panic only type and size are shown. nil: Payloads decides.
	Preview func(Payload) string
}
