package task

import "time"

// Unique says that a task is submitted once in a time. It needs a store of claims beside the
// producer, see producer.Config.Claimer; without one, submitting such a task is an error. A step of
// a workflow, or the entry of a schedule, cannot be unique.
//
// While the key is taken, a second submission of the same task name and key sends nothing. It
// answers with the id of the first, whatever its own id and arguments are, and whether the first
// waits, runs, has failed or is over. [Conditions.UniqueKey] instead refuses a second submission,
// and until the task is over.
type Unique struct {
	// Key is any text of 1 to 255 bytes. Each task name has its own keys; all producers with one
	// store and namespace share them.
	Key string
	// TTL is how long the key is taken after the broker has confirmed the task. Above 0, at most
	// 100 years.
	TTL time.Duration
}

// WithUnique answers a second submission of this task name and key with the id of the first, for
// ttl after that was confirmed. See [Unique].
func WithUnique(key string, ttl time.Duration) Option {
	return func(c *Call) { c.Unique = &Unique{Key: key, TTL: ttl} }
}
