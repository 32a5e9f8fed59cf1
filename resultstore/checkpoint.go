package resultstore

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/task"
)

// Limits of the checkpoints of one task.
const (
	MaxCheckpoints     = 64        // the largest number of names
	MaxCheckpointName  = 255       // the longest name, in bytes
	MaxCheckpointBytes = 256 << 10 // the sum of Checkpoint.Size
)

// DefaultCheckpointTTL is the default of Attempt.TTL. A task that failed for good keeps its
// checkpoints so long, so that its dead letter can be requeued.
const DefaultCheckpointTTL = 30 * 24 * time.Hour

// Attempt is an attempt of a task that uses checkpoints. (Generation, Deliveries) is its fencing
// token.
type Attempt struct {
	ID         task.ID
	Generation int
	Deliveries int
	// TTL is the least time that the store keeps all checkpoints of the task after the call. 0 or
	// less: [DefaultCheckpointTTL].
	TTL time.Duration
}

// Checkpoint is a value that a task has stored under a name. A store keeps no reference to Value
// after SaveCheckpoint returns. Checkpoints that a store returns belong to the caller.
type Checkpoint struct {
	Name        string // 1 to [MaxCheckpointName] bytes of UTF-8 without control characters
	ContentType string // media type of Value
	Value       []byte
}

// Size returns the bytes that count against [MaxCheckpointBytes].
func (c *Checkpoint) Size() int { return len(c.Name) + len(c.ContentType) + len(c.Value) }

// Checkpointer is a store that keeps checkpoints of tasks beside their records. A store need not
// implement it. Each method is one atomic step and safe for concurrent use.
//
// Both methods return [ErrStale] and change nothing in three cases:
//
//   - A newer attempt has called one of them.
//   - The record of the task has a newer fencing token.
//   - The record of the task is terminal.
//
// The checkpoints of a task have one expiry of their own, which each call renews. They stay when
// the record expires or is replaced. They are deleted in two cases:
//
//   - Save, SaveBatch or SaveTx stores a record with DropCheckpoints, or finds that terminal record
//     stored already. The store deletes both in one step, or else the checkpoints after the record.
//   - Delete removes the record of the task. It also removes checkpoints without a record.
//
// After [ErrUnavailable] or an error of ctx the step may have been executed. Repeating the call
// with the same arguments is safe.
type Checkpointer interface {
	// SaveCheckpoint stores c and replaces a checkpoint of the same name. Returns [ErrMalformed] for
	// an invalid name, and [ErrTooLarge] if the task would have more than [MaxCheckpoints] names or
	// more than [MaxCheckpointBytes]. Neither changes anything.
	SaveCheckpoint(ctx context.Context, a Attempt, c Checkpoint) error
	// LoadCheckpoints returns all checkpoints of the task, in the order of their names. A task without
	// checkpoints is not an error. After the call no older attempt can store one.
	LoadCheckpoints(ctx context.Context, a Attempt) ([]Checkpoint, error)
}

// Kept returns how long the store keeps the checkpoints after a call of this attempt.
func (a *Attempt) Kept() time.Duration {
	if a.TTL > 0 {
		return a.TTL
	}
	return DefaultCheckpointTTL
}

// Older reports whether the fencing token of a is older than (generation, deliveries).
func (a *Attempt) Older(generation, deliveries int) bool {
	if a.Generation != generation {
		return a.Generation < generation
	}
	return a.Deliveries < deliveries
}

// Fenced returns [ErrStale] if the stored record r of the task forbids a to use checkpoints.
func (a *Attempt) Fenced(r *Record) error {
	if r.State.Terminal() || a.Older(r.Generation, r.Deliveries) {
		return ErrStale
	}
	return nil
}

// Check returns nil if a store may accept c. Returns [ErrMalformed] for an invalid name or content
// type, and [ErrTooLarge] if c alone exceeds [MaxCheckpointBytes].
func (c *Checkpoint) Check() error {
	switch {
	case len(c.Name) == 0 || len(c.Name) > MaxCheckpointName:
		return fmt.Errorf("%w: the name of a checkpoint has %d bytes, it must have 1 to %d", ErrMalformed, len(c.Name), MaxCheckpointName)
	case !plain(c.Name):
		return fmt.Errorf("%w: the name %.64q of a checkpoint is not UTF-8 or has a control character", ErrMalformed, c.Name)
	case !plain(c.ContentType):
		return fmt.Errorf("%w: the content type of checkpoint %q is not UTF-8 or has a control character", ErrMalformed, c.Name)
	case c.Size() > MaxCheckpointBytes:
		return tooManyBytes(c.Name, c.Size())
	}
	return nil
}

// plain reports whether s is UTF-8 without control characters.
func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

// CheckCheckpoints returns [ErrTooLarge] if a task may not have names checkpoints with size bytes
// together. name is the new checkpoint.
func CheckCheckpoints(name string, names, size int) error {
	switch {
	case names > MaxCheckpoints:
		return fmt.Errorf("%w: checkpoint %q would be the %dth of its task, at most %d are kept", ErrTooLarge, name, names, MaxCheckpoints)
	case size > MaxCheckpointBytes:
		return tooManyBytes(name, size)
	}
	return nil
}

// tooManyBytes returns ErrTooLarge for a task whose checkpoints would have size bytes.
func tooManyBytes(name string, size int) error {
	return fmt.Errorf("%w: with checkpoint %q the checkpoints of its task have %d bytes, at most %d are kept", ErrTooLarge, name, size, MaxCheckpointBytes)
}
