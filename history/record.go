package history

import (
	"cmp"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// State names the state of a task by its last event.
type State string

// The states of a record.
const (
	Pending   State = "pending"   // sent, and not received by a consumer
	Received  State = "received"  // in a consumer, and not started
	Started   State = "started"   // its handler runs
	Awaiting  State = "awaiting"  // waits for an answer from outside
	Retrying  State = "retrying"  // an attempt failed, and another one follows
	Succeeded State = "succeeded" // ended
	Failed    State = "failed"    // ended; Record.DeadLetter tells whether it can be requeued
	Revoked   State = "revoked"   // ended
	Expired   State = "expired"   // ended
)

// States returns all states, in the order of a task's life.
func States() []State {
	return []State{Pending, Received, Started, Awaiting, Retrying, Succeeded, Failed, Revoked, Expired}
}

// Terminal reports whether s is the end of a task.
func (s State) Terminal() bool { return s == Succeeded || s == Failed || s == Revoked || s == Expired }

// Kind is the kind of an entry of a timeline.
type Kind string

// The kinds of entries.
const (
	KindSent      Kind = "sent"
	KindReceived  Kind = "received"
	KindStarted   Kind = "started"
	KindProgress  Kind = "progress"
	KindAwaiting  Kind = "awaiting"
	KindRetried   Kind = "retried" // the attempt failed, and another one follows
	KindSucceeded Kind = "succeeded"
	KindFailed    Kind = "failed"
	KindRevoked   Kind = "revoked"
	KindExpired   Kind = "expired"
)

// rank returns the place of k within an attempt, from 0. Entries of one attempt are ordered by it
// before their times, since clocks differ.
func (k Kind) rank() int {
	switch k {
	case KindSent:
		return 0
	case KindReceived:
		return 1
	case KindStarted, KindProgress:
		return 2
	case KindAwaiting:
		return 3
	case KindRetried:
		return 4
	}
	return 5
}

// Entry is one event in the timeline of a task. Times are in milliseconds, by the clock of the
// node.
type Entry struct {
	Kind Kind      `json:"kind"`
	Time time.Time `json:"time"`
	Node string    `json:"node,omitempty"` // the node that sent the event

	Life       int `json:"life,omitempty"`       // how often the dead letter was requeued before
	Attempt    int `json:"attempt"`              // from 1
	Generation int `json:"generation,omitempty"` // number of copies made of the task

	Queue      string        `json:"queue,omitempty"` // sent, received
	Due        time.Time     `json:"due,omitzero"`    // sent: it does not start before; zero: at once
	Run        time.Duration `json:"run,omitempty"`   // of the handler, at the end of an attempt
	Error      string        `json:"error,omitempty"` // at most 256 bytes
	Class      string        `json:"class,omitempty"` // of the error
	DeadLetter bool          `json:"dead_letter,omitempty"`

	// Progress, of KindProgress
	Done  int64  `json:"done,omitempty"`
	Total int64  `json:"total,omitempty"`
	Note  string `json:"note,omitempty"`
}

// compare returns -1, 0 or +1 for the order of two entries of one task in a timeline: life,
// attempt, generation, rank, time, then all other fields. It returns 0 only if all fields are
// equal.
func (e *Entry) compare(o *Entry) int {
	c := cmp.Or(
		cmp.Compare(e.Life, o.Life), cmp.Compare(e.Attempt, o.Attempt), cmp.Compare(e.Generation, o.Generation),
		cmp.Compare(e.Kind.rank(), o.Kind.rank()), e.Time.Compare(o.Time),
	)
	if c != 0 { // of nearly all entries
		return c
	}
	return cmp.Or(
		cmp.Compare(e.Kind, o.Kind), cmp.Compare(e.Node, o.Node),
		cmp.Compare(e.Queue, o.Queue), e.Due.Compare(o.Due), cmp.Compare(e.Run, o.Run), cmp.Compare(e.Error, o.Error), cmp.Compare(e.Class, o.Class),
		compareBool(e.DeadLetter, o.DeadLetter), cmp.Compare(e.Done, o.Done), cmp.Compare(e.Total, o.Total), cmp.Compare(e.Note, o.Note),
	)
}

// compareBool returns -1, 0 or +1; false is less than true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Progress holds the last report of a running task about itself.
type Progress struct {
	Done  int64     `json:"done"`
	Total int64     `json:"total,omitempty"` // 0: not known
	Note  string    `json:"note,omitempty"`
	Time  time.Time `json:"time"`
}

// Record is the history of one task. Fields that no event told are zero.
//
// State, DeadLetter, Node, the times, Attempts and the error are about the current life. Earlier
// lives are in the timeline.
type Record struct {
	ID    task.ID `json:"id"`
	Name  string  `json:"name,omitempty"`
	Queue string  `json:"queue,omitempty"`
	State State   `json:"state"`
	// the task failed for good, and its message is a dead letter, which can be requeued
	DeadLetter bool   `json:"dead_letter,omitempty"`
	Node       string `json:"node,omitempty"` // the last consumer, otherwise the producer

	Changed  time.Time `json:"changed"`       // newest event
	Sent     time.Time `json:"sent,omitzero"` // first message of this life
	Received time.Time `json:"received,omitzero"`
	Started  time.Time `json:"started,omitzero"` // of the last attempt
	Ended    time.Time `json:"ended,omitzero"`
	Due      time.Time `json:"due,omitzero"` // the last message does not start before; zero: at once

	// Wait is the time from the sending of the last started attempt, or from its Due, to its start.
	// Run is the run time of the last ended attempt. Negative: not known.
	Wait time.Duration `json:"wait"`
	Run  time.Duration `json:"run"`

	Life     int `json:"life,omitempty"` // how often the dead letter was requeued
	Attempts int `json:"attempts"`       // started attempts

	Parent task.ID `json:"parent,omitempty"` // the task that sent this one
	Root   task.ID `json:"root,omitempty"`   // first task of the workflow; "": the task itself
	Group  task.ID `json:"group,omitempty"`

	// Error, Class and Stack are of the last failed attempt. They are empty after a success.
	Error string `json:"error,omitempty"`
	Class string `json:"class,omitempty"` // such as "swarmiji.TimeLimit", see task.RemoteError
	Stack string `json:"stack,omitempty"`

	Args    string            `json:"args,omitempty"`    // preview, as the nodes allow it
	Result  string            `json:"result,omitempty"`  // preview
	Headers map[string]string `json:"headers,omitempty"` // those that events.Report.Headers selects

	// Original is the task as it was received last under its id, and OriginalType its media type. nil:
	// not kept, see events.Report.KeepArguments. A [Page] leaves both out.
	Original     []byte `json:"original,omitempty"`
	OriginalType string `json:"original_type,omitempty"`

	Progress *Progress `json:"progress,omitempty"` // nil: not reported

	// Timeline holds the entries of all lives in their order; of more than 80 the first 20 and the
	// last 60. The entries of an attempt that several consumers had, one after the other, are ordered
	// by consumer. A [Page] leaves it out.
	Timeline []Entry `json:"timeline,omitempty"`
}
