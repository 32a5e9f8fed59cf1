package broker

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/capability"
)

// The most bytes of a dead letter's texts that are kept.
const (
	MaxReason = 4 << 10
	MaxStack  = 8 << 10
)

// Dead is a dead letter.
type Dead struct {
	Message  *Message  // as it was, byte for byte
	Queue    string    // the queue that it belonged to
	Reason   string    // why it is dead; of longer ones the first [MaxReason] bytes are kept
	Stack    string    // of the goroutine that panicked, "" if none did; of longer ones the first [MaxStack] bytes are kept
	Attempts int       // how many runs of the handler had ended; 0: unknown
	At       time.Time // when it was dead-lettered
	// Unreadable: the message is no task, or its arguments do not fit. An adapter may keep such
	// letters in a place of their own, which [DeadLetterer] shows, removes and counts with the
	// others. It is not told by ScanDead.
	Unreadable bool
}

// Normalized returns d as adapters store it: Reason and Stack are valid UTF-8 and no longer than
// what is kept, Attempts is not negative, and At is now where it was zero.
func (d Dead) Normalized() Dead {
	d.Reason, d.Stack = cutText(d.Reason, MaxReason), cutText(d.Stack, MaxStack)
	d.Attempts = max(d.Attempts, 0)
	if d.At.IsZero() {
		d.At = time.Now()
	}
	return d
}

// cutText returns s as valid UTF-8 of at most n bytes. A character that n would cut in two is left
// out.
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

// DeadAction is what a scan does with the letter that it has shown.
type DeadAction int

// The actions of a scan.
const (
	DeadKeep   DeadAction = iota // the letter stays where it is
	DeadRemove                   // the letter is removed
	DeadStop                     // the letter stays, and the scan ends
)

// DeadLetterer is a Broker whose dead letters can be written and read.
//
// The adapter bounds the letters of a queue by age and by number, by default [DefaultDeadTTL] and
// [DefaultDeadMax]; the oldest go first.
type DeadLetterer interface {
	// PutDead adds a dead letter, also of a message that no broker holds any more. Nil means what
	// it means of Publish.
	//
	//   - The place for a queue's dead letters is created if it does not exist.
	//   - d.Queue is not looked at; d.At is now if it is zero.
	//   - The same (ID, Generation) put twice is one letter, with the later notes, or two.
	//   - Full dead letters refuse nothing: the oldest is dropped.
	//
	// PutDead owns d.Message as Publish does. Safe for concurrent use.
	PutDead(ctx context.Context, queue string, d Dead) error
	// ScanDead shows the dead letters of a queue to fn, the oldest first, each at most once, and
	// does with each what fn answers. It ends after the letters that there were when it began,
	// after DeadStop, or with ctx, whose error it then returns.
	//
	//   - fn may take its time and use the Broker, but must not scan the same queue.
	//   - The letter belongs to the broker: fn must not change its message.
	//   - What fn had removed is gone for good when ScanDead returns nil. After an error a letter
	//     that was to be removed may be there still, and the next scan shows it.
	//   - Some servers hide the letters from other scans until this one ends; they may be shown
	//     to one of two scans at once, or to both.
	//
	// Returns [ErrNoQueue] if there is no such queue. Safe for concurrent use.
	ScanDead(ctx context.Context, queue string, fn func(*Dead) DeadAction) error
	// PurgeDead removes the dead letters of a queue, without reading them, and returns how many
	// they were.
	PurgeDead(ctx context.Context, queue string) (int, error)
}

// The bounds of a queue's dead letters where the adapter's configuration names none.
const (
	DefaultDeadTTL = 30 * 24 * time.Hour
	DefaultDeadMax = 100_000
)

// AuditDead is what an [Auditor] says of a queue that keeps no more than most dead letters and has
// dead of them; "" if it is not full. most of 0 or less is no limit.
func AuditDead(queue string, dead, most int) string {
	if most <= 0 || dead < most {
		return ""
	}
	return fmt.Sprintf("the dead letters of queue %s are full: %d, of at most %d; the oldest are dropped for each that comes", queue, dead, most)
}

// ListDead returns up to n dead letters of a queue, the oldest first; they stay where they are.
// [ErrUnsupported] if b is no [DeadLetterer].
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
