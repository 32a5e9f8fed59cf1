package steps

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// Next is the envelope of a task's next message.
type Next struct {
	task.Envelope
	Reason      string // the failure before a retry, as events may show it
	RateLimited bool   // it waits for its rate limit
}

// NextOf returns a copy of e for the next message of its task. The caller may change it, but not
// the slices and maps in it. The count of crashes, which older versions kept there, is 0.
func NextOf(e *task.Envelope) *Next {
	next := &Next{Envelope: *e}
	next.Crashes = 0
	return next
}

// SetDelay sets e.Meta.NotBefore to the time d from now, rounded up to milliseconds, and returns
// that time. For d <= 0 it unsets NotBefore and returns the zero time. The caller also gives the
// time to the broker; a broker that cannot delay for so long delivers earlier, and the next
// consumer reads NotBefore.
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

// ForeignID returns the id of a task whose envelope has no id: the id of its message if that is a
// valid task id, else a new one. Returns an error if no new one can be made.
func ForeignID(m *broker.Message) (task.ID, error) {
	if id := task.ID(m.ID); id.Check() == nil {
		return id, nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("swarmiji: make an id: %w", err)
	}
	return task.ID(id.String()), nil
}
