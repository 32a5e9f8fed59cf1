package task

import (
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/utf"
)

// Conditions say when a task may run beside others. No broker knows them: a producer that has a
// store of jobs (producer.Config.Jobs) keeps such a task as a job until they let it be sent, and a
// runner of jobs sends it (runner.Config.Queue); without such a producer submitting it is an
// error. The task's run, its retries and its future are those of any other task. A step of a
// workflow, or the entry of a schedule, cannot have conditions.
//
// A job's turn, its weight and its unique key are its own until the end of the task is recorded,
// retries included.
type Conditions struct {
	// SequenceKey: the tasks of one key, whatever their names, run one at a time, in the order in
	// which they were submitted. "": none. At most 255 bytes.
	SequenceKey string
	// UniqueKey: while one task of this name and key is not over, submitting another one is an
	// error. "": none. At most 512 bytes.
	UniqueKey string
	// Weight is how much of the limit of its jobs' queue it takes while it runs; 0: nothing. It is
	// rounded up to thousandths. Unset: 1.
	Weight Opt[float64]
	// Windows are the times at which it may be sent, as "Mon-Fri 09:00-17:00" in UTC, or "WINDOWS
	// Europe/Berlin 09:00-17:00" in a zone (see when.Windows). "": any time.
	Windows string
	// Throttle names the queue of jobs whose runner sends it, as far as its limit and its throttler
	// let it. It is not the broker's queue. "": [DefaultThrottle].
	Throttle string
}

// DefaultThrottle is the queue of jobs of tasks that have conditions and name no other.
const DefaultThrottle = "tasks"

// HeaderConditions is the header that a producer gives to a task with conditions. It holds the
// task's id, by which what follows it, and inherits its headers, is told apart.
const HeaderConditions = "swarmiji-conditions"

// Conditioned is a task with conditions as a producer hands it to what keeps it until they let it
// be sent (producer.Keeper).
type Conditioned struct {
	ID         ID
	Name       string
	Conditions Conditions // Throttle is set
	// Priority: lower goes first.
	Priority int
	// NotBefore is when it may be sent at the earliest. Zero: at once.
	NotBefore time.Time
	// Message is a JSON object that holds the message; the producer reads it when the task is to be
	// sent.
	Message []byte
	// Chosen: the caller chose the ID, so that it may be kept already.
	Chosen bool
}

// TakenError says that a task with conditions was refused, since its unique key is another's that
// is not over. It wraps Err.
type TakenError struct {
	Key  string // the unique key
	Job  string // the job that has it
	Task ID     // the task that the job is made of; "": none
	Err  error
}

// Error names the job and the task that have the key.
func (e *TakenError) Error() string {
	text := fmt.Sprintf("unique key %q: job %s has it", utf.Cut(e.Key, 128), e.Job)
	if e.Task != "" {
		text += ", which is task " + string(e.Task)
	}
	return text + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *TakenError) Unwrap() error { return e.Err }

// WithSequenceKey has the tasks of one key run one at a time, in the order in which they are
// submitted. See [Conditions].
func WithSequenceKey(key string) Option {
	return onCondition(func(c *Conditions) { c.SequenceKey = key })
}

// WithUniqueKey has a second task of this name and key refused while the first one is not over. See
// [Conditions].
func WithUniqueKey(key string) Option { return onCondition(func(c *Conditions) { c.UniqueKey = key }) }

// WithWeight sets how much of the limit of its jobs' queue the task takes while it runs; 0 means
// nothing. See [Conditions].
func WithWeight(w float64) Option { return onCondition(func(c *Conditions) { c.Weight = Set(w) }) }

// WithWindows sets the times at which the task may be sent, as "Mon-Fri 09:00-17:00". See
// [Conditions].
func WithWindows(text string) Option { return onCondition(func(c *Conditions) { c.Windows = text }) }

// WithThrottle names the queue of jobs whose runner sends the task when its limit and its throttler
// let it. See [Conditions].
func WithThrottle(queue string) Option {
	return onCondition(func(c *Conditions) { c.Throttle = queue })
}

// onCondition changes a copy of the conditions: those of a definition belong to all calls of it.
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
