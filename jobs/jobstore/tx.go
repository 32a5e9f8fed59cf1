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
	// Early returns the early answer to a name and a key, expired or not. Returns nil if no such
	// answer exists. It locks nothing; use AnswerLock.
	Early(ctx context.Context, name, key string) (*EarlyAnswer, error)
	// SaveEarly writes early answers. Each replaces the early answer to its name and key.
	SaveEarly(ctx context.Context, answers ...*EarlyAnswer) error
	// DeleteEarly deletes the early answer to a name and a key. A missing one is ignored.
	DeleteEarly(ctx context.Context, name, key string) error
	// ExpireEarly deletes early answers whose Expires is not after by, and returns them. It deletes at
	// most limit answers, in the order of Expires. It stops as soon as their Results have size bytes
	// in total.
	ExpireEarly(ctx context.Context, by time.Time, limit, size int) ([]EarlyAnswer, error)

	// DeferralOf returns the open deferral with a name and a key. If no such deferral is open, it
	// returns the deferral that was settled last, or nil. It locks nothing.
	DeferralOf(ctx context.Context, name, key string) (*Deferral, error)
	// OpenDeferrals returns the tasks of the open deferrals with these names and keys (groups ByKey).
	// Groups without an open deferral are left out. It locks nothing. The number of round trips to a
	// server does not depend on the number of groups.
	OpenDeferrals(ctx context.Context, groups ...Group) (map[Group]task.ID, error)
	// Deferrals returns the deferrals of tasks in the order of their ids, and locks them until the
	// transaction ends. Missing ones are left out.
	Deferrals(ctx context.Context, tasks ...task.ID) ([]Deferral, error)
	// DueDeferrals returns the first open deferrals of a broker's queue whose Due is not after by, in
	// the order of Due. It returns at most limit deferrals and locks them. It skips deferrals that
	// another transaction has locked.
	DueDeferrals(ctx context.Context, queue string, by time.Time, limit int) ([]Deferral, error)
	// AwaitingDeferrals returns deferrals of a broker's queue in phase DeferralAwaiting, in the order
	// of task ids. It begins after the task after, and returns at most limit deferrals. It locks
	// nothing.
	AwaitingDeferrals(ctx context.Context, queue string, after task.ID, limit int) ([]Deferral, error)
	// SaveDeferrals writes deferrals. Each replaces the deferral of its task, which this transaction
	// must have locked.
	SaveDeferrals(ctx context.Context, deferrals ...*Deferral) error
	// DeleteDeferrals deletes the deferrals of tasks. Missing ones are ignored.
	DeleteDeferrals(ctx context.Context, tasks ...task.ID) error
	// ExpireDeferrals deletes at most limit deferrals whose Expires is not after by. It returns the
	// number of deleted deferrals.
	ExpireDeferrals(ctx context.Context, by time.Time, limit int) (int, error)
}

// AnswerLock returns the name of the lock ([Tx].Lock) for answers to a name and a key. Take it
// before looking for the job, deferral or early answer with this key.
func AnswerLock(name, key string) string { return "answer " + KeyDigest(name, key) }

// DeferralLock returns the name of the lock ([Tx].Lock) for the deferral of a task, which may not
// exist yet. Take it before reading the deferral, and before AnswerLock.
func DeferralLock(id task.ID) string { return "deferral " + KeyDigest("", string(id)) }

// KeyDigest returns a text of 32 hexadecimal digits that identifies a name and a key of any length:
// the first half of a SHA-256.
func KeyDigest(name, key string) string {
	sum := sha256.Sum256([]byte(name + "\x00" + key))
	return hex.EncodeToString(sum[:16])
}
