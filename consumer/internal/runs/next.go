package runs

import (
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Next is the envelope of the task's next message.
type Next struct {
	task.Envelope
	Reason      string // the failure before a retry, as events may show it
	RateLimited bool   // it waits for its rate limit
}

// SetDelay sets e.Meta.NotBefore to d from now, rounded up to milliseconds, and returns that time.
// For d <= 0 it unsets NotBefore and returns zero. The caller also gives the time to the broker; a
// broker that cannot delay for so long delivers earlier, and the next consumer reads NotBefore.
func (e *Next) SetDelay(d time.Duration) time.Time {
	if d <= 0 {
		e.Meta.NotBefore = task.Opt[time.Time]{}
		return time.Time{}
	}
	return e.SetNotBefore(time.Now().Add(d))
}

// SetNotBefore sets e.Meta.NotBefore to at, rounded up to milliseconds, as the message carries it.
// It returns the rounded time.
func (e *Next) SetNotBefore(at time.Time) time.Time {
	// Add keeps the monotonic clock reading
	at = at.Add(at.Add(time.Millisecond - 1).Truncate(time.Millisecond).Sub(at))
	e.Meta.NotBefore = task.Set(at)
	return at
}
