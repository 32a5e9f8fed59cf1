// Package events is the port through which nodes tell each other what happens to tasks: fan-out, at most once, to every
// listener. It never blocks or fails a task. The package eventstest holds a case for every sentence of the port.
package events

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// The types of events. The names are part of the wire format.
const (
	TaskSent      = "task-sent"      // by the producer, after the broker confirmed the task
	TaskReceived  = "task-received"  // by the consumer that took it from the broker; it may still wait for a worker
	TaskStarted   = "task-started"   // just before a run
	TaskSucceeded = "task-succeeded" // after the result was stored
	TaskFailed    = "task-failed"    // after an attempt failed; Retry tells whether another one follows
	TaskRevoked   = "task-revoked"   // by the consumer that skipped it
	TaskAwaiting  = "task-awaiting"  // after a run ended whose answer is to come from outside
	TaskRevoke    = "task-revoke"    // asks consumers to skip tasks; package revoke writes and reads it
)

// Limits of the texts of an event, in bytes. Longer ones are cut.
const (
	MaxPreview = 1 << 10 // Args, Result
	MaxText    = 4 << 10 // Exception, Stack
)

// Event is something that happened. Fields that do not belong to its Type are zero and are not sent.
type Event struct {
	Type   string
	TaskID task.ID
	NodeID string    // of the node it happened in; of an event about a node, that one's
	Time   time.Time // UTC, on that process's clock; milliseconds on the wire

	Name       string // sent, received
	Args       string // sent, received: a preview of the arguments, as the policy of the node allows; "" for none
	Retries    int    // sent, received
	Queue      string // sent, received
	Exchange   string // sent
	RoutingKey string // sent

	PID int // started

	Runtime time.Duration // succeeded, failed: the handler alone
	Pool    time.Duration // succeeded, failed: from the hand-over to the pool until the outcome was settled; at least Runtime
	Result  string        // succeeded: a preview of the result

	Exception string // failed: the error's text
	Stack     string // failed: the stack, where there is one
	Retry     bool   // failed: another attempt follows

	Worker *Worker // worker-online, worker-heartbeat, worker-offline; nil where a foreign writer says nothing of it

	Fields map[string]any // further fields, never one of the names above; nil for none
}

// Payload is what the preview of arguments or of a result is made of: see Report.Preview, of producers and
// consumers.
type Payload struct {
	Task        string // its name
	Result      bool   // a result; false: arguments
	ContentType string // of Data
	Data        []byte // serialized; not to be changed or kept
}

// The classes of errors a bus returns.
var (
	ErrClosed      = errors.New("events: closed")
	ErrUnavailable = errors.New("events: unavailable")
	ErrMalformed   = errors.New("events: malformed message")
)

// EventBus carries events to every listener. All methods may be called from any goroutine.
type EventBus interface {
	// Publish hands e over and returns at once, in less time than any I/O takes. What cannot be sent is dropped, the oldest
	// first, and counted. It returns [ErrClosed] after Close and nil otherwise.
	Publish(ctx context.Context, e Event) error
	// Subscribe opens a stream of the events published from now on that f lets through; every subscription gets its own
	// copy of each. When it returns nil the stream is open.
	Subscribe(ctx context.Context, f Filter) (Subscription, error)
	// Close sends what is waiting, within ctx, and releases all resources. It is idempotent.
	Close(ctx context.Context) error
}

// PromptPublisher is a bus that vouches for what [EventBus] asks of Publish. Producers and consumers call such a bus
// themselves. Any other they put behind a queue and a goroutine of their own, so that a mistake in it costs events and not tasks.
type PromptPublisher interface {
	// PublishNow is Publish for callers that must not wait. It never blocks and never panics, whatever the connection and the
	// listeners do.
	PublishNow(e Event) error
}

// Filter chooses events. The zero value lets all through.
type Filter struct {
	Types  []string // nil: all
	TaskID task.ID  // "": all
}

// Match reports whether f lets e through.
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

// Subscription is a stream of events. It outlives lost connections; events of that time are missed.
type Subscription interface {
	// Receive returns the next event, ctx's error or [ErrClosed]. Events of one publisher come in the order of their Publish.
	Receive(ctx context.Context) (Event, error)
	// Close ends the stream; it is idempotent.
	Close(ctx context.Context) error
}

// DropCounter is a bus or a subscription that counts what it had to drop.
type DropCounter interface {
	// Dropped returns the number since it was opened.
	Dropped() uint64
}
