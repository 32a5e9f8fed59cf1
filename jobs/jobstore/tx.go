package jobstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// AnswerTx is the part of a transaction that reads and writes early answers and deferrals. In a
// View all writing methods fail.
type AnswerTx interface {
	// Early returns the early answer of a name and a key, expired or not. Returns nil if there is
	// none. It locks nothing: see AnswerLock.
	Early(ctx context.Context, name, key string) (*EarlyAnswer, error)
	// SaveEarly writes early answers. Each replaces the one of its name and key.
	SaveEarly(ctx context.Context, answers ...*EarlyAnswer) error
	// DeleteEarly deletes the early answer of a name and a key. A missing one is ignored.
	DeleteEarly(ctx context.Context, name, key string) error
	// ExpireEarly deletes early answers whose Expires is not after by, and returns them: the first
	// ones, at most limit. It stops when the Results of those have size bytes together.
	ExpireEarly(ctx context.Context, by time.Time, limit, size int) ([]EarlyAnswer, error)

	// DeferralOf returns the open deferral of a name and a key. If none is open, it returns the one
	// that was over last, or nil. It locks nothing.
	DeferralOf(ctx context.Context, name, key string) (*Deferral, error)
	// Deferrals returns the deferrals of tasks and locks them, in the order of their ids. Missing
	// ones are ignored.
	Deferrals(ctx context.Context, tasks ...task.ID) ([]Deferral, error)
	// DueDeferrals returns the first open deferrals of a broker's queue whose Due is not after by,
	// in the order of Due. It returns at most limit, and locks them. It skips deferrals that
	// another transaction has locked.
	DueDeferrals(ctx context.Context, queue string, by time.Time, limit int) ([]Deferral, error)
	// AwaitingDeferrals returns deferrals of a broker's queue that are DeferralAwaiting, of tasks
	// above after, in the order of task ids. It returns at most limit, and locks nothing.
	AwaitingDeferrals(ctx context.Context, queue string, after task.ID, limit int) ([]Deferral, error)
	// SaveDeferrals writes deferrals. Each replaces the one of its task, which this transaction has
	// locked.
	SaveDeferrals(ctx context.Context, deferrals ...*Deferral) error
	// DeleteDeferrals deletes deferrals. Missing ones are ignored.
	DeleteDeferrals(ctx context.Context, tasks ...task.ID) error
	// ExpireDeferrals deletes deferrals whose Expires is not after by, at most limit. It returns
	// how many.
	ExpireDeferrals(ctx context.Context, by time.Time, limit int) (int, error)
}

// AnswerLock returns the lock to take before a look for the receiver of an answer of a name and a
// key. It covers jobs, deferrals and early answers.
func AnswerLock(name, key string) string { return "answer " + KeyDigest(name, key) }

// DeferralLock returns the lock to take before a look for the deferral of a task, which may not
// exist yet. Take it before AnswerLock.
func DeferralLock(id task.ID) string { return "deferral " + KeyDigest("", string(id)) }

// KeyDigest returns a short text for a name and a key of any length.
func KeyDigest(name, key string) string {
	sum := sha256.Sum256([]byte(name + "\x00" + key))
	return hex.EncodeToString(sum[:16])
}
