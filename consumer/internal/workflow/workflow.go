// Package workflow sends the tasks that follow an ended task: its successors, its error tasks, and
// the tasks that follow its group. A consumer makes a [Sender] for each task that ends.
//
//   - workflow.go: Config, Run, Ended, Sender; sender.go: which tasks follow; publish.go: how they
//     are sent
//   - group.go: the end of a group's member; members.go: reads of the results of a group
package workflow

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// ErrUnsendable marks a failure that repetition cannot help.
var ErrUnsendable = errors.New("swarmiji: cannot be sent")

// ErrNotSent is the error for the hooks if a task was not confirmed before its sender gave up.
var ErrNotSent = errors.New("swarmiji: consumer: not confirmed")

// Config is shared by all senders of a consumer.
type Config struct {
	Broker broker.Broker
	Codec  *wire.Codec
	// Gatherer receives the ends of members. nil: each group with a following task fails.
	Gatherer resultstore.Gatherer
	// GroupWait is how long a group waits for its members.
	GroupWait time.Duration
	// Node is the node of the consumer.
	Node string
	// BeforeEnqueue asks the hooks about a task before it is sent. after receives the outcome.
	BeforeEnqueue func(queue string, e *task.Envelope) (after func(error), veto error)
	// Sent is called for each task that was sent.
	Sent func(queue string, e *task.Envelope)
}

// Run is the run of the task that has ended.
type Run interface {
	// Step repeats do until it succeeds. Returns false if it gave up; the task is then delivered
	// again.
	Step(what string, do func(context.Context) error) bool
	// Save stores the record of a task that does not run now. from is its envelope or that of its
	// parent. Returns false like Step.
	Save(id task.ID, name string, from *task.Envelope, meta *task.Metadata, rec resultstore.Record) bool
	// NoGatherer reports that the task is in a group and there is no Gatherer.
	NoGatherer()
	// Log logs a line that names the task.
	Log(level slog.Level, msg string, attrs ...slog.Attr)
}

// Ended is a task that has ended.
type Ended struct {
	// Queue is the queue of the consumer that it came from.
	Queue string
	// Envelope is the envelope of the task, with the headers that its successors get.
	Envelope *task.Envelope
	// At is when it ended.
	At time.Time
	// Value is its result, if Cause is nil.
	Value wire.Value
	// Cause is the error of a task that failed, and State its state.
	Cause *task.RemoteError
	State task.State
	// Compression compresses the results for the Gatherer. TTL is their retention there.
	Compression task.Opt[string]
	TTL         time.Duration
}

// Sender sends the tasks that follow a task. A successor that cannot be sent counts as failed. The
// tasks that follow it are handled likewise, so that no future waits for ever. One goroutine uses a
// Sender.
type Sender struct {
	c       *Config
	run     Run
	t       *Ended
	queue   string
	at      time.Time
	outs    []outgoing
	stopped bool // a step gave up: the task is delivered again
}

// Send sends the tasks that follow t. Returns false if the task is to be delivered again.
//
// The ids of these tasks were chosen at submission, or are derived from the id of the parent. So a
// repetition after a crash sends the same messages.
func Send(c *Config, run Run, t *Ended) bool {
	f := &Sender{c: c, run: run, t: t, queue: t.Queue, at: t.At}
	end := ending{given: wire.Given{Value: t.Value}}
	if t.Cause != nil {
		end = ending{cause: t.Cause, state: t.State}
	}
	f.ended(t.Envelope, end)
	f.flush()
	return !f.stopped
}

// save stores the record of a task that does not run now.
func (f *Sender) save(id task.ID, name string, from *task.Envelope, meta *task.Metadata, rec resultstore.Record) {
	if !f.stopped {
		f.stopped = !f.run.Save(id, name, from, meta, rec)
	}
}
