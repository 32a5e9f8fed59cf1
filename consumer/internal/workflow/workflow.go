// Package workflow sends the tasks that follow an ended task: its successors, its error tasks, and
// the tasks that follow its group. A consumer calls [Send] for each task that ends.
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

// ErrUnsendable marks a message or record that can never be encoded or sent. Repeating does not
// help.
var ErrUnsendable = errors.New("swarmiji: cannot be sent")

// ErrNotSent is the outcome that the hooks receive for a task that was not confirmed before its
// sender gave up.
var ErrNotSent = errors.New("swarmiji: consumer: not confirmed")

// Config holds the settings that all senders of a consumer share.
type Config struct {
	Broker broker.Broker
	Codec  *wire.Codec
	// Gatherer receives the ends of members. nil: each group with a following task fails.
	Gatherer resultstore.Gatherer
	// GroupWait limits how long a group waits for its next member.
	GroupWait time.Duration
	// Node is the name of the consumer.
	Node string
	// BeforeEnqueue calls the enqueue hooks for a task before it is sent. after receives the
	// outcome. An error is a veto.
	BeforeEnqueue func(queue string, e *task.Envelope) (after func(error), veto error)
	// Sent is called after each confirmed publish.
	Sent func(queue string, e *task.Envelope)
	// Counted is called after the end of a member has arrived, at most once a second for each group,
	// and for the last member. nil: not called.
	Counted func(member *task.Envelope, g resultstore.Gathered)
	// Counts limits the calls of Counted. Required with it.
	Counts *Counts
}

// Run is the ended task as its consumer settles it.
type Run interface {
	// Step repeats do until it succeeds. Returns false if it gave up; the task is then delivered
	// again.
	Step(what string, do func(context.Context) error) bool
	// Save stores the record of a task that does not run now. from is its envelope or that of its
	// parent. Returns false as Step does.
	Save(id task.ID, name string, from *task.Envelope, meta *task.Metadata, rec resultstore.Record) bool
	// NoGatherer reports that the task is in a group and no Gatherer is configured.
	NoGatherer()
	// Log logs a line that names the task.
	Log(level slog.Level, msg string, attrs ...slog.Attr)
}

// Ended describes a task that has ended.
type Ended struct {
	// Queue is the queue of the consumer that the task came from.
	Queue string
	// Envelope is the envelope of the task, with the headers that its successors get.
	Envelope *task.Envelope
	// At is the time of its end.
	At time.Time
	// Value is its result, if Cause is nil.
	Value wire.Value
	// Cause is the error of a task that failed, and State its state.
	Cause *task.RemoteError
	State task.State
	// Compression is the compression of the results for the Gatherer. TTL is their retention there.
	Compression task.Opt[string]
	TTL         time.Duration
}

// Sender sends the tasks that follow an ended task. It treats a successor that cannot be sent as a
// failed task and also handles the tasks that follow it. No future then waits for ever. Only one
// goroutine may use a Sender.
type Sender struct {
	c       *Config
	run     Run
	t       *Ended
	queue   string
	at      time.Time
	outs    []outgoing
	stopped bool // a step was given up: the task is delivered again
}

// Send sends the tasks that follow t, also the next step of its group if t decides the group. It
// blocks until all are confirmed or recorded as failed, and then returns true. Returns false if a
// step was given up; the task must then be delivered again.
//
// The ids of these tasks were chosen at submission or are derived from the id of their parent. A
// repetition after a crash therefore sends the same tasks.
func Send(c *Config, run Run, t *Ended) bool {
	f := &Sender{c: c, run: run, t: t, queue: t.Queue, at: t.At}
	end := ending{given: wire.Given{Value: t.Value}}
	if t.Cause != nil {
		end = ending{cause: t.Cause, state: t.State}
	}
	f.handleEnd(t.Envelope, end)
	f.flush()
	return !f.stopped
}

// save stores the record of a task that does not run now, see Run.Save, and blocks until that is
// done or given up. If it is given up, it sets f.stopped. It does nothing if f.stopped is set.
func (f *Sender) save(id task.ID, name string, from *task.Envelope, meta *task.Metadata, rec resultstore.Record) {
	if !f.stopped {
		f.stopped = !f.run.Save(id, name, from, meta, rec)
	}
}

// Accepted returns err, the error of a Save, unless the store refused the record for good. It then
// returns nil: the store has a newer record, the record is malformed, or the submitter is gone.
func Accepted(err error) error {
	if errors.Is(err, resultstore.ErrStale) || errors.Is(err, resultstore.ErrUnreachable) || errors.Is(err, resultstore.ErrMalformed) {
		return nil
	}
	return err
}
