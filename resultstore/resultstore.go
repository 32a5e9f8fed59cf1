// Package resultstore is the port through which results come back: what a consumer saves and a submitter waits for. Any
// store works with any broker. The package resultstoretest holds a case for every sentence here that says what a store does.
package resultstore

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/task"
)

// The classes of errors a store returns, beside the client's own error. They never hold a secret.
var (
	ErrNotFound    = errors.New("resultstore: no record of this task")
	ErrStale       = errors.New("resultstore: a newer attempt or a final result is recorded already")
	ErrClosed      = errors.New("resultstore: closed")
	ErrUnavailable = errors.New("resultstore: unavailable")
	ErrTooLarge    = errors.New("resultstore: record too large")
	ErrMalformed   = errors.New("resultstore: malformed record")
	// ErrUnreachable: the submitter's side of a reply queue is gone, so that nobody will read this record. Repeating is
	// useless.
	ErrUnreachable = errors.New("resultstore: the submitter is gone")
	// ErrLost: records that were sent to this submitter are gone, or may be. The stream goes on.
	ErrLost = errors.New("resultstore: the reply queue was lost, and with it the records that were sent meanwhile")
)

// Record is what is known of a task. The pair (Generation, Deliveries) is the fencing token of the attempt that wrote it:
// pairs compare by Generation, then by Deliveries. Records are values; a store keeps no reference to their slices after
// Save returned, and the ones it returns belong to the caller.
type Record struct {
	ID          task.ID
	Name        string
	State       task.State // a terminal one, StateRetrying, StateAwaiting, StateRequeued, or StateStarted where asked for
	Generation  int
	Deliveries  int
	Retries     int
	ContentType string // of Result
	Result      []byte // serialized, for StateSucceeded
	Error       *task.RemoteError
	StartedAt   time.Time // of the last attempt; milliseconds are kept
	FinishedAt  time.Time // of the last attempt; milliseconds are kept
	NodeID      string    // consumer that wrote the record
	ReplyTo     string    // node id of the submitter, for notification
	Correlation string
	Life        int           // of the task, see task.Envelope; 0 unless it was put back from the dead letters
	TTL         time.Duration // how long the record is kept after Save, at least; 0: the store's default. Not part of what is read back
}

// Older reports whether r's fencing token is older than s's.
func (r *Record) Older(s *Record) bool {
	if r.Generation != s.Generation {
		return r.Generation < s.Generation
	}
	return r.Deliveries < s.Deliveries
}

// Reopens reports whether r begins a new life of the task that old is the final record of: r is [task.StateRequeued], its
// Generation is newer, and the task had failed or expired.
func (r *Record) Reopens(old *Record) bool {
	return r.State == task.StateRequeued && r.Generation > old.Generation &&
		(old.State == task.StateFailed || old.State == task.StateExpired)
}

// ResultStore keeps records. All methods may be called from any goroutine; a ctx bounds every wait.
type ResultStore interface {
	// Save writes r, visible to every Load that begins after it returned. A record with an older token than the stored one
	// is refused with [ErrStale], and so is any record of another token on a terminal one, unless it reopens that one
	// ([Record.Reopens]). The same terminal record saved again is nil and changes nothing.
	Save(ctx context.Context, r Record) error
	// Load returns the record of a task, [ErrNotFound] if there is none or its time is over.
	Load(ctx context.Context, id task.ID) (Record, error)
	// Delete removes the record of a task; no record is no error.
	Delete(ctx context.Context, id task.ID) error
	// Close releases all resources; it is idempotent.
	Close(ctx context.Context) error
}

// Notifier is a store that can tell a submitter about records as they are saved. It is a hint and may miss some.
type Notifier interface {
	// Notify opens the stream of terminal records whose ReplyTo is node, from now on. One stream serves all tasks of a
	// submitter. A record is delivered to one stream or more of that node.
	Notify(ctx context.Context, node string) (Notifications, error)
}

// Notifications is the stream of records of one submitter. It outlives lost connections.
type Notifications interface {
	// Receive returns the next record, ctx's error or [ErrClosed].
	Receive(ctx context.Context) (Record, error)
	// Close ends the stream; it is idempotent.
	Close(ctx context.Context) error
}

// Replier is a store that only hands records to their submitter and keeps none: Load never finds one that another process
// saved. Results die with the submitter's process. It is no [Notifier].
type Replier interface {
	// Replies opens the stream of the records whose ReplyTo is node, from now on. These are terminal records, and open ones that
	// hold an error, which says why the task waits. A record is delivered to one stream or more of that node.
	Replies(ctx context.Context, node string) (Replies, error)
}

// Replies is the stream of a [Replier]. Its records are all that a submitter gets.
type Replies interface {
	// Notifications: Receive returns [ErrLost] once when the place of the records is found to be gone, before it is made anew. No
	// record of a Save that ended before that will come, unless it came already.
	Notifications
	// Ready returns nil at once while the place of the records is there, as far as is known. Else it waits until it is there again,
	// or returns [ErrUnavailable] with ctx's error when ctx ends, or [ErrClosed]. It is not ready from the moment that the stream
	// sees the place gone until after Receive has returned [ErrLost]. Safe for concurrent use.
	Ready(ctx context.Context) error
}

// RepliesOnly reports whether s is a [Replier], so that records can be had from its stream alone.
func RepliesOnly(s ResultStore) bool {
	_, ok := capability.As[Replier](s)
	return ok
}
