package jobstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// AnswerTx is the part of a transaction that reads and writes early answers and deferrals. In a
// View all methods that write fail.
type AnswerTx interface {
	// Early returns the early answer of a name and a key, whether it has expired or not; nil if
	// there is none. It locks nothing: see AnswerLock.
	Early(ctx context.Context, name, key string) (*EarlyAnswer, error)
	// SaveEarly writes early answers, each in the place of one of its name and key.
	SaveEarly(ctx context.Context, answers ...*EarlyAnswer) error
	// DeleteEarly deletes the early answer of a name and a key. A missing one is ignored.
	DeleteEarly(ctx context.Context, name, key string) error
	// ExpireEarly deletes early answers whose Expires is not after by, the first ones, at most
	// limit, and returns them.
	ExpireEarly(ctx context.Context, by time.Time, limit int) ([]EarlyAnswer, error)

	// DeferralOf returns the open deferral of a name and a key, else the one of them that was over
	// last; nil if there is none. It locks nothing.
	DeferralOf(ctx context.Context, name, key string) (*Deferral, error)
	// Deferrals returns the deferrals of tasks and locks them, in the order of their ids. Missing
	// ones are left out.
	Deferrals(ctx context.Context, tasks ...task.ID) ([]Deferral, error)
	// DueDeferrals returns the first open deferrals of a broker's queue whose Due is not after by,
	// at most limit, in the order of Due, and locks them. What another transaction has locked is
	// passed over.
	DueDeferrals(ctx context.Context, queue string, by time.Time, limit int) ([]Deferral, error)
	// AwaitingDeferrals returns the deferrals of a broker's queue that are DeferralAwaiting, of
	// tasks above after, at most limit, in the order of the tasks' ids. It locks nothing.
	AwaitingDeferrals(ctx context.Context, queue string, after task.ID, limit int) ([]Deferral, error)
	// SaveDeferrals writes deferrals, each in the place of the one of its task, which this
	// transaction has locked.
	SaveDeferrals(ctx context.Context, deferrals ...*Deferral) error
	// DeleteDeferrals deletes deferrals. Missing ones are ignored.
	DeleteDeferrals(ctx context.Context, tasks ...task.ID) error
	// ExpireDeferrals deletes deferrals whose Expires is not after by, at most limit, and returns
	// how many.
	ExpireDeferrals(ctx context.Context, by time.Time, limit int) (int, error)
}

// AnswerLock is what a transaction locks before it looks up who waits for an answer of a name and a
// key: it covers jobs, deferrals and early answers.
func AnswerLock(name, key string) string { return "answer " + KeyDigest(name, key) }

// DeferralLock is what a transaction locks before it looks up the deferral of a task, which may not
// be there yet. It comes before AnswerLock.
func DeferralLock(id task.ID) string { return "deferral " + KeyDigest("", string(id)) }

// KeyDigest is a short text that stands for a name and a key, be they long.
func KeyDigest(name, key string) string {
	sum := sha256.Sum256([]byte(name + "\x00" + key))
	return hex.EncodeToString(sum[:16])
}
