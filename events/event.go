// Package events defines how nodes report events of tasks to each other. Every listener receives
// each event at most once. Events never block or fail a task. Package eventstest has a case for
// every sentence about the behaviour of a bus.
package events

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Types of events. The names are part of the wire format.
const (
	TaskSent = "task-sent" // sent by the producer after the broker confirmed the task
	// sent by the consumer that received it from the broker; it may still wait for a worker
	TaskReceived  = "task-received"
	TaskStarted   = "task-started"   // sent just before an attempt
	TaskSucceeded = "task-succeeded" // sent after the result was stored
	// sent after an attempt failed; Retry reports whether another attempt follows
	TaskFailed  = "task-failed"
	TaskRevoked = "task-revoked" // sent by the consumer that skipped the task
	// sent after an attempt ended and the task waits for an answer from outside
	TaskAwaiting = "task-awaiting"
	// sent while an attempt runs, at most once a second; Fields has done, total and note
	TaskProgress = "task-progress"
	// sent after a member of a group ended, at most once a second by one consumer, and after the last
	// member; TaskID is the task that follows the group, and Fields has group, root, done, failed and
	// total
	GroupProgress = "group-progress"
	// asks consumers to skip tasks; package revoke writes and reads it
	TaskRevoke = "task-revoke"
)

// ProgressFields returns the Fields of a [TaskProgress] event.
func ProgressFields(p task.ProgressValue) map[string]any {
	return map[string]any{"done": p.Done, "total": p.Total, "note": p.Note}
}

// GroupCounts returns the [GroupProgress] event after the end of a member of a group.
func GroupCounts(member *task.Envelope, done, failed, total int) *Event {
	return &Event{Type: GroupProgress, TaskID: member.Chord.ID, Fields: map[string]any{
		"group": string(member.Group), "root": string(member.RootID()), "done": done, "failed": failed, "total": total,
	}}
}

// Limits of the texts of an event, in bytes. Longer texts are cut.
const (
	MaxPreview = 1 << 10 // Args, Result
	MaxText    = 4 << 10 // Exception, Stack
)

// Event reports a change of a task or a node. Fields that do not belong to its Type are zero and
// are not sent.
type Event struct {
	Type   string
	TaskID task.ID
	NodeID string    // node that the event is about, or on which it occurred
	Time   time.Time // UTC, by the clock of that process; milliseconds on the wire

	Name string // sent, received
	// sent, received: preview of the arguments, if the node's policy allows it; "": no preview
	Args       string
	Retries    int    // sent, received
	Queue      string // sent, received
	Exchange   string // sent
	RoutingKey string // sent

	PID int // started

	Runtime time.Duration // succeeded, failed: run time of the handler
	// succeeded, failed: time from the start in the pool until the attempt was settled; at least
	// Runtime
	Pool   time.Duration
	Result string // succeeded: preview of the result

	Exception string // failed: text of the error
	Stack     string // failed: stack trace; "": not known
	Retry     bool   // failed: another attempt follows

	// worker-online, worker-heartbeat, worker-offline; nil if a foreign writer sent no such fields
	Worker *Worker

	Fields map[string]any // further fields under names that are not used above; nil: no further fields
}

// Payload holds the arguments or the result from which Report.Preview of producers and consumers
// makes a preview.
type Payload struct {
	Task        string // name of the task
	Result      bool   // Data is a result; false: arguments
	ContentType string // media type of Data
	Data        []byte // serialized; must not be changed or kept
}

// Errors that a bus returns.
var (
	ErrClosed      = errors.New("events: closed")
	ErrUnavailable = errors.New("events: unavailable")
	ErrMalformed   = errors.New("events: malformed message")
)

// EventBus delivers events to all listeners. All methods are safe for concurrent use.
type EventBus interface {
	// Publish queues e and returns at once, without waiting for I/O. Events that cannot be sent are
	// dropped, the oldest first, and counted. Returns [ErrClosed] after Close and nil otherwise.
	Publish(ctx context.Context, e Event) error
	// Subscribe opens a stream of the events that match f and are published from now on. Every
	// subscription receives its own copy of each event. The stream is open when Subscribe returns nil.
	Subscribe(ctx context.Context, f Filter) (Subscription, error)
	// Close sends the waiting events until ctx ends, and releases all resources. Further calls do
	// nothing.
	Close(ctx context.Context) error
}

// PromptPublisher is a bus whose Publish certainly never blocks. Producers and consumers call such
// a bus directly. For any other bus they use their own queue and goroutine, so that a mistake in
// the bus costs events and not tasks.
type PromptPublisher interface {
	// PublishNow does the same as Publish. It never blocks and never panics, whatever the connection
	// and the listeners do.
	PublishNow(e Event) error
}

// Filter selects events. The zero value selects all.
type Filter struct {
	Types  []string // nil: all types
	TaskID task.ID  // "": all tasks
}

// Match reports whether f selects e: its task is f.TaskID, if that is set, and its type is one of
// f.Types, if there are any.
func (f Filter) Match(e *Event) bool {
	if f.TaskID != "" && f.TaskID != e.TaskID {
		return false
	}
	if len(f.Types) == 0 {
		return true
	}
	for _, t := range f.Types {
		if t == e.Type {
			return true
		}
	}
	return false
}

// Subscription is a stream of events. It survives lost connections, but misses the events of that
// time.
type Subscription interface {
	// Receive waits for the next event and returns it. Events of one publisher arrive in the order of
	// their Publish. Returns ctx's error when ctx ends, and [ErrClosed] after Close.
	Receive(ctx context.Context) (Event, error)
	// Close ends the stream. Further calls do nothing.
	Close(ctx context.Context) error
}

// DropCounter is a bus or a subscription that counts the events that it dropped.
type DropCounter interface {
	// Dropped returns the number of dropped events since the bus or subscription was opened.
	Dropped() uint64
}
