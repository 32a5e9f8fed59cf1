package events

import "time"

// Report configures the events of a producer or a consumer about itself and its tasks. The zero
// value is usable.
type Report struct {
	// NodeID names the node in events and records. It must be unique. Default: a name made of the
	// host, the process and a random part.
	NodeID string
	// HeartbeatEvery is the time between heartbeats (worker-heartbeat).
	//
	//   - worker-online is sent first: at the first submission of a producer, and at the start of a
	//     consumer's Run.
	//   - worker-offline is sent last: in Close of a producer, and at the end of a consumer's Run.
	//
	// Default: 2 s. Negative: no events about the node. Less than 10 ms is refused. Nothing is sent
	// without a bus.
	HeartbeatEvery time.Duration
	// HeartbeatFields returns further fields for each heartbeat, such as a version or a zone. Fields
	// with the name of a standard field are left out. It runs on its own goroutine, one call at a
	// time, and a heartbeat waits for it. Nil: no further fields.
	HeartbeatFields func() map[string]any
	// Payloads adds previews of arguments and results, of at most 1 KiB, to events. False: events show
	// only their type and size, because payloads may hold secrets. With a Sealer a consumer also
	// leaves out the texts of errors.
	//
	// These payloads are never shown:
	//   - payloads of types with fields tagged `task:"secret"`
	//   - at the producer: payloads of members of groups
	//   - at the consumer: payloads of tasks without a handler
	Payloads bool
	// Preview makes the previews instead of Payloads. It runs for every task, so it must be fast. If
	// it panics, the event shows only type and size. Nil: Payloads decides.
	Preview func(Payload) string
	// Headers selects headers of tasks that events show, such as a tenant. A history can be searched
	// by them. At most [MaxHeaders] names count. Values are cut to [MaxHeaderValue] bytes. Nil: no
	// headers are shown, because they may hold secrets.
	Headers []string
	// KeepArguments makes consumers add a task's name, metadata, original arguments and all of its
	// headers to the event of its first receipt. A history then keeps them, and the task can run again
	// after its end. KeepArguments is the size of the largest such addition in bytes, at most
	// [MaxOriginal]. 0: none. Producers ignore it. Events that wait for a slow bus or a slow history
	// need that memory too.
	//
	// Nothing is added for tasks whose arguments have fields tagged `task:"secret"`, for tasks without
	// a handler, and for messages that name no task. With a Sealer nothing is added at all.
	KeepArguments int
}
