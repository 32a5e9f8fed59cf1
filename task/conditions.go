package task

import (
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/utf"
)

// Conditions limit when a task may run beside other tasks. Brokers do not know them. A producer
// with a store of jobs (producer.Config.Jobs) keeps such a task as a job until its conditions allow
// it. A runner of jobs then sends it (runner.Config.Queue). Without a store of jobs the submission
// fails.
//
// Attempts, retries and the future of the task are as for other tasks. A step of a workflow or an
// entry of a schedule cannot have conditions. The job holds its place in the sequence, its weight
// and its unique key until the end of the task is recorded, retries included.
type Conditions struct {
	// SequenceKey makes the tasks with the same key, whatever their names, run one at a time in the
	// order of their submission. "": no sequence. At most 255 bytes.
	SequenceKey string
	// UniqueKey makes the submission of a second task with this name and key fail until the first one
	// has ended. "": no key. At most 512 bytes.
	UniqueKey string
	// Weight is the part of the limit of its jobs' queue that the task uses while it runs. 0: nothing.
	// It is rounded up to thousandths. Default: 1.
	Weight Opt[float64]
	// Windows are the times at which the task may be sent, such as "Mon-Fri 09:00-17:00" in UTC, or
	// "WINDOWS Europe/Berlin 09:00-17:00" in a time zone (see when.Windows). "": any time.
	Windows string
	// Throttle names the queue of jobs whose limit and throttler apply, and whose runner sends the
	// task. It is not a queue of the broker. Default: [DefaultThrottle].
	Throttle string
}

// DefaultThrottle is the queue of jobs for tasks with conditions but no Throttle.
const DefaultThrottle = "tasks"

// HeaderConditions is the header that a producer adds to a task with conditions. Its value is the
// task's id, which tells the task apart from followers that inherit its headers.
const HeaderConditions = "swarmiji-conditions"

// Conditioned is a task with conditions, as a producer passes it to the store that keeps it until
// it may be sent (producer.JobCreator).
type Conditioned struct {
	ID         ID
	Name       string
	Conditions Conditions // with Throttle set
	// Priority orders the tasks. Lower goes first.
	Priority int
	// NotBefore is the earliest time to send it. Zero: at once.
	NotBefore time.Time
	// Message is a JSON object with the message. The producer reads it to send the task.
	Message []byte
	// Chosen reports that the caller chose the ID, so the task may be stored already.
	Chosen bool
}

// TakenError reports that a task with conditions was refused because another task with its unique
// key has not ended. It wraps Err.
type TakenError struct {
	Key  string // the unique key
	Job  string // the job that holds the key
	Task ID     // the task of that job; "": the job has no task
	Err  error
}

// Error returns a text with the job and the task that hold the key.
func (e *TakenError) Error() string {
	text := fmt.Sprintf("unique key %q: job %s has it", utf.Cut(e.Key, 128), e.Job)
	if e.Task != "" {
		text += ", which is task " + string(e.Task)
	}
	return text + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *TakenError) Unwrap() error { return e.Err }

// WithSequenceKey makes the tasks with this key run one at a time, in the order of their
// submission. See [Conditions].
func WithSequenceKey(key string) Option {
	return onCondition(func(c *Conditions) { c.SequenceKey = key })
}

// WithUniqueKey makes the submission of a second task with this name and key fail until the first
// one has ended. See [Conditions].
func WithUniqueKey(key string) Option { return onCondition(func(c *Conditions) { c.UniqueKey = key }) }

// WithWeight sets the part of the limit of its jobs' queue that the task uses while it runs. 0:
// nothing. See [Conditions].
func WithWeight(w float64) Option { return onCondition(func(c *Conditions) { c.Weight = Set(w) }) }

// WithWindows sets the times at which the task may be sent, such as "Mon-Fri 09:00-17:00". See
// [Conditions].
func WithWindows(text string) Option { return onCondition(func(c *Conditions) { c.Windows = text }) }

// WithThrottle sets the queue of jobs whose limit and throttler apply to the task. See
// [Conditions].
func WithThrottle(queue string) Option {
	return onCondition(func(c *Conditions) { c.Throttle = queue })
}

// onCondition returns an option that changes a copy of the conditions, since all calls of a
// definition share its conditions.
func onCondition(set func(*Conditions)) Option {
	return func(c *Call) {
		var own Conditions
		if c.Conditions != nil {
			own = *c.Conditions
		}
		set(&own)
		c.Conditions = &own
	}
}
