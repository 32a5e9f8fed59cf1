package events

import "time"

// Report says what a node, a producer or a consumer, tells of itself and of its tasks. The zero
// value is usable.
type Report struct {
	// NodeID names the node in events and records. No other node may have it. "": made of host,
	// process and chance.
	NodeID string
	// HeartbeatEvery is how often the node tells that it is alive (worker-heartbeat).
	//
	//   - worker-online comes before: with a producer's first submission, with a consumer's Run.
	//   - worker-offline comes last: in a producer's Close, at the end of a consumer's Run.
	//
	// 0: 2 s. Negative: no events about the node. Less than 10 ms is refused. Nothing is sent
	// without a bus.
	HeartbeatEvery time.Duration
	// HeartbeatFields gives further fields of each heartbeat, such as a version or a zone; those
	// that have the name of a standard field are left out. It runs beside the tasks, one call at a
	// time, and a heartbeat waits for it. nil: none.
	HeartbeatFields func() map[string]any
	// Payloads puts previews of arguments and results, at most 1 KiB, into events. False: only their
	// type and size, since they may hold secrets. With a Sealer a consumer leaves out the texts of
	// errors, too.
	//
	// Never shown are those of types with fields tagged `task:"secret"`, those of members of groups
	// at the producer, and those of tasks without a handler at the consumer.
	Payloads bool
	// Preview makes these previews instead: it shows, hides or cuts what it wants. It runs on the
	// way of every task, so it must be quick; after a panic type and size are shown. nil: Payloads
	// decides.
	Preview func(Payload) string
}
