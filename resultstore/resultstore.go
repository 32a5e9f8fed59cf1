// Package resultstore defines how results return to their submitters: a consumer saves the record
// of a task, and a submitter loads it or waits for it. Every store works with every broker.
//
// Authors of stores test them with package resultstoretest. It has a case for every sentence here
// about the behaviour of a store.
package resultstore

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/task"
)

// Errors that a store returns, each wrapped with the client's own error. No error text holds a
// secret.
var (
	ErrNotFound    = errors.New("resultstore: no record of this task")
	ErrStale       = errors.New("resultstore: a newer attempt or a final result is recorded already")
	ErrClosed      = errors.New("resultstore: closed")
	ErrUnavailable = errors.New("resultstore: unavailable")
	ErrTooLarge    = errors.New("resultstore: record too large")
	ErrMalformed   = errors.New("resultstore: malformed record")
	// ErrUnsupported: the store cannot do this, such as a write in a transaction of another database.
	ErrUnsupported = errors.New("resultstore: not supported")
	// ErrUnreachable reports that the reply queue of the submitter is gone, so that no process will
	// read the record. Repeating Save does not help.
	ErrUnreachable = errors.New("resultstore: the submitter is gone")
	// ErrLost reports that records sent to this submitter are lost or may be lost. The stream
	// continues.
	ErrLost = errors.New("resultstore: the reply queue was lost with the records in it")
)

// Record holds the state of a task as its last writer stored it. The pair (Generation, Deliveries)
// is the fencing token of the attempt that wrote it. Tokens compare by Generation, then by
// Deliveries.
//
// A store keeps no reference to the slices of a Record after Save or SaveBatch returns. Records
// that a store returns belong to the caller.
type Record struct {
	ID   task.ID
	Name string
	// terminal, or StateRetrying, StateAwaiting, StateRequeued or, if enabled, StateStarted
	State       task.State
	Generation  int
	Deliveries  int
	Retries     int
	ContentType string // media type of Result
	Result      []byte // serialized result if State is StateSucceeded
	Error       *task.RemoteError
	StartedAt   time.Time // start of the last attempt, in whole milliseconds
	FinishedAt  time.Time // end of the last attempt, in whole milliseconds
	NodeID      string    // consumer that wrote the record
	ReplyTo     string    // node id of the submitter that is notified
	Correlation string
	// Progress is the last progress that the attempt has reported, see [task.Progress].
	Progress task.ProgressValue
	// Life is the number of times that the task was requeued from the dead letters; see task.Envelope.
	Life int
	// Parent is the task that sent this one, and Group its group. "": none. Stores return both.
	Parent, Group task.ID
	// Children are the tasks that follow this one after its success, at most [MaxChildren]. Stores
	// return them. nil: no task follows, or its id is known only when it is sent.
	Children []task.ID
	// TTL is the least time that the store keeps the record after Save. 0: the default of the store.
	// Load does not return it.
	TTL time.Duration
	// DropCheckpoints makes a [Checkpointer] delete the checkpoints of the task together with Save.
	// Other stores ignore it. Load does not return it.
	DropCheckpoints bool
}

// MaxChildren is the largest number of ids in Record.Children. Further ids are left out.
const MaxChildren = 100

// Older reports whether the fencing token of r is older than that of s.
func (r *Record) Older(s *Record) bool {
	if r.Generation != s.Generation {
		return r.Generation < s.Generation
	}
	return r.Deliveries < s.Deliveries
}

// Reopens reports whether r starts a new life of a task whose stored final record is old. That is
// so if r is [task.StateRequeued] with a newer Generation and the task had failed or expired.
func (r *Record) Reopens(old *Record) bool {
	return r.State == task.StateRequeued && r.Generation > old.Generation &&
		(old.State == task.StateFailed || old.State == task.StateExpired)
}

// ResultStore stores one record for each task. All methods are safe for concurrent use. When ctx
// ends, a method stops waiting and returns.
type ResultStore interface {
	// Save stores r. Every Load that begins after Save returned sees it. Saving the same terminal
	// record again returns nil and changes nothing. Save returns [ErrStale] in two cases:
	//
	//   - The stored record has a newer token than r.
	//   - The stored record is terminal, has another token than r, and r does not reopen it
	//     ([Record.Reopens]).
	Save(ctx context.Context, r Record) error
	// Load returns the record of a task. Returns [ErrNotFound] if no record exists or it has expired.
	Load(ctx context.Context, id task.ID) (Record, error)
	// Delete removes the record of a task. Returns nil if no record exists.
	Delete(ctx context.Context, id task.ID) error
	// Close releases all resources of the store. Further calls do nothing.
	Close(ctx context.Context) error
}

// Notifier is a store that sends records to their submitter as they are saved. Notifications are
// hints: the store may miss some.
type Notifier interface {
	// Notify opens a stream of the terminal records with ReplyTo node that are saved from now on. One
	// stream serves all tasks of a submitter. If a node has several streams, a record is delivered to
	// at least one of them.
	Notify(ctx context.Context, node string) (Notifications, error)
}

// Notifications is the stream of records of one submitter. It survives lost connections.
type Notifications interface {
	// Receive waits for the next record and returns it. Returns the error of ctx when ctx ends, and
	// [ErrClosed] after Close.
	Receive(ctx context.Context) (Record, error)
	// Close ends the stream. Further calls do nothing.
	Close(ctx context.Context) error
}

// Replier is a store that sends records to their submitter and does not keep them. Load never finds
// a record that another process saved, and results end with the submitter's process. A Replier is
// not a [Notifier].
type Replier interface {
	// Replies opens a stream of the records with ReplyTo node that are saved from now on. The stream
	// carries terminal records, and open records with an error that says why the task waits. If a node
	// has several streams, a record is delivered to at least one of them.
	Replies(ctx context.Context, node string) (Replies, error)
}

// Replies is the stream of a [Replier]. A submitter receives records only through this stream.
type Replies interface {
	// Notifications is the stream itself. Its Receive returns [ErrLost] once for each loss of the
	// reply queue, before the queue is created again. Records whose Save returned before that arrive
	// only if they have arrived already.
	Notifications
	// Ready waits until the reply queue exists, as far as the store knows, and then returns nil.
	// Returns [ErrUnavailable] with ctx's error when ctx ends, and [ErrClosed] after Close. After a
	// loss Ready waits until Receive has returned [ErrLost]. Safe for concurrent use.
	Ready(ctx context.Context) error
}

// RepliesOnly reports whether s is or wraps a [Replier], so that its records arrive only through
// the stream.
func RepliesOnly(s ResultStore) bool {
	_, ok := capability.As[Replier](s)
	return ok
}
