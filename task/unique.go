package task

import "time"

// Unique makes a task be submitted once within a time. The producer needs a store of claims, see
// producer.Config.Claimer; without one the submission fails. A step of a workflow or an entry of a
// schedule cannot be unique.
//
// While the key is taken, a second submission with the same task name and key sends nothing. It
// returns the id of the first task. The second one's id and arguments, and the state of the first
// task, do not matter. In contrast, [Conditions.UniqueKey] refuses a second submission, and only
// until the first task has ended.
type Unique struct {
	// Key is any text of 1 to 255 bytes. Each task name has its own keys. All producers with the same
	// store and namespace share them.
	Key string
	// TTL is the time for which the key is taken after the broker has confirmed the task. Above 0, at
	// most 100 years.
	TTL time.Duration
}

// WithUnique makes a second submission with this task name and key return the id of the first one.
// That ends ttl after the confirm of the first one. See [Unique].
func WithUnique(key string, ttl time.Duration) Option {
	return func(c *Call) { c.Unique = &Unique{Key: key, TTL: ttl} }
}
