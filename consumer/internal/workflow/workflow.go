// Package workflow sends what follows a task when the task has ended: its successors, its error
// tasks, and what follows its group. A consumer makes a [Sender] for each task that ends.
//
//   - workflow.go: what a Sender needs; sender.go: which tasks follow; publish.go: how they are sent
//   - group.go: the end of a group's member; members.go: reading the results of a group
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

// ErrUnsendable marks a failure that repeating does not mend.
var ErrUnsendable = errors.New("swarmiji: cannot be sent")

// ErrNotSent is what the hooks get of a task that was not confirmed before its sender gave up.
var ErrNotSent = errors.New("swarmiji: consumer: not confirmed")

// Config is what all senders of a consumer have in common.
type Config struct {
	Broker broker.Broker
	Codec  *wire.Codec
	// Gatherer is told of the ends of groups' members. nil: what follows a group fails.
	Gatherer resultstore.Gatherer
	// GroupWait is how long a group waits for its members.
	GroupWait time.Duration
	// Node is the consumer's.
	Node string
	// BeforeEnqueue asks the hooks about a task that is to be sent. after is told what came of it.
	BeforeEnqueue func(queue string, e *task.Envelope) (after func(error), veto error)
	// Sent is told of a task that was sent.
	Sent func(queue string, e *task.Envelope)
}

// Run is the run of the task that has ended.
type Run interface {
	// Step repeats do until it succeeds. False: it could not be carried out; the task comes again.
	Step(what string, do func(context.Context) error) bool
	// Save stores the record of a task that does not run now. from is its envelope or its parent's.
	// False as Step.
	Save(id task.ID, name string, from *task.Envelope, meta *task.Metadata, rec resultstore.Record) bool
	// NoGatherer is told that the task is in a group and there is no Gatherer.
	NoGatherer()
	// Log writes a line that names the task.
	Log(level slog.Level, msg string, attrs ...slog.Attr)
}

// Ended is a task that has ended.
type Ended struct {
	// Queue is the consumer's queue that it was taken from.
	Queue string
	// Envelope is the task's, with the headers that its successors get.
	Envelope *task.Envelope
	// At is when it ended.
	At time.Time
	// Value is its result, if Cause is nil.
	Value wire.Value
	// Cause is why it failed, and State how.
	Cause *task.RemoteError
	State task.State
	// Compression is that of the results that go to the Gatherer, and TTL how long it keeps them.
	Compression task.Opt[string]
	TTL         time.Duration
}

// Sender sends what follows a task. A successor that cannot be sent counts as a task that has failed,
// and what follows that one is dealt with likewise, so that no future waits for ever. One goroutine
// uses a Sender.
type Sender struct {
	c       *Config
	run     Run
	t       *Ended
	queue   string
	at      time.Time
	outs    []outgoing
	stopped bool // a step could not be carried out: the task comes again
}

// Send sends what follows t, and reports whether to go on; false: the task comes again. The ids of
// what follows were chosen at submission or are derived from the parent's, so that a repeat after a
// crash sends the same messages again.
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
