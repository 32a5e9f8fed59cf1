package task

import "time"

// Burst makes several submissions of a task one run, with the newest arguments. Set it with
// [WithDebounce] or [WithLatest]. It needs a store of bursts, see producer.Config.Bursts; without
// one the submission fails. Of several such options of a submission the last one counts.
//
// All submissions of a burst have one id, and their futures get the result of its run. The first
// submission decides the queue, the priority and the fairness key. The newest one decides the
// arguments and all other metadata.
//
// Submit refuses a burst together with an id of the caller, a delay, a unique key, conditions,
// following tasks or a place in a workflow. Schedules and SubmitTx refuse it too.
type Burst struct {
	// Key is UTF-8 of 1 to 255 bytes. Each task name has its own keys. All producers and consumers
	// with the same store and namespace share them.
	Key string
	// Latest: see [WithLatest]. The durations must then be 0.
	Latest bool
	// Quiet is the time from the last submission to the run. 1ms to 24h.
	Quiet time.Duration
	// Most limits the time from the first submission to the run. At least Quiet, at most 7 days. 0: 7
	// days.
	Most time.Duration
}

// WithDebounce makes submissions with this task name and key one task: it runs with the newest
// arguments, quiet after the last submission. If submissions continue, it runs at the latest most
// after the first one. A submission after that begins the next burst, which may run at the same
// time. See [Burst].
//
// The times are those of the clocks of the producers and the consumer. So clocks must differ by
// less than quiet.
func WithDebounce(key string, quiet, most time.Duration) Option {
	return func(c *Call) { c.Burst = &Burst{Key: key, Quiet: quiet, Most: most} }
}

// WithLatest runs one task with this task name and key at a time. While it runs, or waits for a
// retry or an answer, at most one further task waits, with the newest arguments. See [Burst].
func WithLatest(key string) Option {
	return func(c *Call) { c.Burst = &Burst{Key: key, Latest: true} }
}
