package broker

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/capability"
)

// The size limits of a dead letter's texts, in bytes. Longer texts are cut.
const (
	MaxReason = 4 << 10
	MaxStack  = 8 << 10
)

// Dead is a dead letter: a message that is not delivered again, with the cause.
type Dead struct {
	Message *Message // unchanged, byte for byte
	Queue   string   // the queue to which it belonged
	Reason  string   // why it was dead-lettered; at most [MaxReason] bytes are stored
	// Stack is the stack trace of the goroutine that panicked, "" without a panic. At most [MaxStack]
	// bytes are stored.
	Stack    string
	Attempts int       // the number of ended runs of the handler; 0: unknown
	At       time.Time // when it was dead-lettered
	// Unreadable says that the message is not a task, or that its arguments do not fit. An adapter may
	// store such letters in a separate place, which [DeadLetterer] reads, removes and counts with the
	// others. ScanDead does not report this field.
	Unreadable bool
}

// Normalized returns a copy of d as adapters store it. Reason and Stack become valid UTF-8 and are
// cut to [MaxReason] and [MaxStack] bytes. A negative Attempts becomes 0. A zero At becomes the
// current time.
func (d Dead) Normalized() Dead {
	d.Reason, d.Stack = cutText(d.Reason, MaxReason), cutText(d.Stack, MaxStack)
	d.Attempts = max(d.Attempts, 0)
	if d.At.IsZero() {
		d.At = time.Now()
	}
	return d
}

// cutText returns s cut to at most n bytes, with each run of invalid UTF-8 replaced by "?". It
// never cuts a character in two.
func cutText(s string, n int) string {
	if len(s) > n {
		for i := n; i > n-utf8.UTFMax; i-- {
			if utf8.RuneStart(s[i]) {
				s = s[:i]
				break
			}
		}
		s = s[:min(n, len(s))]
	}
	return strings.ToValidUTF8(s, "?")
}

// DeadAction says whether [DeadLetterer.ScanDead] keeps the letter that it has just shown.
type DeadAction int

// The actions of a scan.
const (
	DeadKeep   DeadAction = iota // the letter stays where it is
	DeadRemove                   // the letter is removed
	DeadStop                     // the letter stays, and the scan ends
)

// DeadLetterer is a Broker whose dead letters can be written and read.
//
// The adapter limits the dead letters of a queue by age and by number, and drops the oldest first.
// The defaults are [DefaultDeadTTL] and [DefaultDeadMax].
type DeadLetterer interface {
	// PutDead adds a dead letter. Its message need not be in a queue. nil means that the broker has
	// confirmed the letter, as with Publish.
	//
	//   - It creates the storage for the queue's dead letters if that does not exist.
	//   - It ignores d.Queue. A zero d.At becomes the current time.
	//   - If the same (ID, Generation) is put twice, the queue has one letter with the later texts, or
	//     two letters.
	//   - If the dead letters are full, the oldest is dropped. PutDead never refuses a letter for
	//     that.
	//
	// PutDead owns d.Message as Publish does. Safe for concurrent use.
	PutDead(ctx context.Context, queue string, d Dead) error
	// ScanDead calls fn with each dead letter of a queue, the oldest first, each at most once. It
	// keeps or removes the letter as fn returns. It ends after the letters that existed when it began,
	// or after DeadStop. If ctx ends before that it returns ctx's error.
	//
	//   - fn may be slow and may use the Broker, but must not scan the same queue.
	//   - fn must not change the letter's message.
	//   - When ScanDead returns nil, the removed letters are gone for good. After an error a letter
	//     that fn removed may still exist, and the next scan shows it again.
	//   - Some servers hide the letters from other scans until this one ends. Two scans at once may
	//     both see a letter, or only one of them may.
	//
	// Returns [ErrNoQueue] if the queue does not exist. Safe for concurrent use.
	ScanDead(ctx context.Context, queue string, fn func(*Dead) DeadAction) error
	// PurgeDead removes the dead letters of a queue without reading them and returns their number.
	PurgeDead(ctx context.Context, queue string) (int, error)
}

// The limits of a queue's dead letters if the adapter's configuration does not set them.
const (
	DefaultDeadTTL = 30 * 24 * time.Hour
	DefaultDeadMax = 100_000
)

// AuditDead returns the sentence that an [Auditor] reports if the dead letters of a queue are full.
// dead is their number and most is their limit. Returns "" if dead is below most, or if most is 0
// or less, which means no limit.
func AuditDead(queue string, dead, most int) string {
	if most <= 0 || dead < most {
		return ""
	}
	return fmt.Sprintf("the dead letters of queue %s are full: %d, of at most %d; the oldest are dropped for each that comes", queue, dead, most)
}

// ListDead returns up to n dead letters of a queue, the oldest first, and removes none. After an
// error it returns no letters. Returns [ErrUnsupported] if b is not a [DeadLetterer],
// [ErrNoQueue] if the queue does not exist.
func ListDead(ctx context.Context, b Broker, queue string, n int) ([]Dead, error) {
	dl, ok := capability.As[DeadLetterer](b)
	if !ok {
		return nil, fmt.Errorf("the dead letters of queue %q: %w", queue, ErrUnsupported)
	}
	var dead []Dead
	err := dl.ScanDead(ctx, queue, func(d *Dead) DeadAction {
		if len(dead) >= n {
			return DeadStop
		}
		dead = append(dead, *d)
		if len(dead) == n {
			return DeadStop
		}
		return DeadKeep
	})
	if err != nil {
		return nil, err
	}
	return dead, nil
}
