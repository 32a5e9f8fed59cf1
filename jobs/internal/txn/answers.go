package txn

import (
	"context"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// answerKey is the name and the key that an answer is for.
type answerKey struct{ name, key string }

// earlyChange is a change of an early answer in a batch. now is the new early answer, or nil if it
// was deleted.
type earlyChange struct {
	key answerKey
	now *jobstore.EarlyAnswer
}

// Early returns the early answer to a name and a key, which came before its request was stored.
// Changes of this transaction are included. Returns nil if no such answer exists or if it has
// expired. It locks nothing; the key must be locked. Returns errors of the store.
func (t *Step) Early(ctx context.Context, name, key string) (*jobstore.EarlyAnswer, error) {
	if t.batch != nil {
		if e, changed := t.batch.early[answerKey{name, key}]; changed {
			return e, nil
		}
	}
	e, err := t.Tx.Early(ctx, name, key)
	if err != nil || e == nil || !e.Expires.After(t.Now) {
		return nil, err
	}
	return e, nil
}

// SaveEarly stores an early answer, in place of the one with the same name and key. In a batch (a
// transaction that several changes share) the answer is written at the end of the transaction, if
// the current change succeeds. Outside a batch it is written at once. Returns errors of the store.
func (t *Step) SaveEarly(ctx context.Context, e *jobstore.EarlyAnswer) error {
	if t.batch != nil {
		t.batch.pendingEarly = append(t.batch.pendingEarly, earlyChange{answerKey{e.Name, e.Key}, e})
		return nil
	}
	return t.Tx.SaveEarly(ctx, e)
}

// DeleteEarly deletes the early answer to a name and a key. A missing one is ignored. In a batch
// it is deleted at the end of the transaction, if the current change succeeds. Outside a batch it
// is deleted at once. Returns errors of the store.
func (t *Step) DeleteEarly(ctx context.Context, name, key string) error {
	if t.batch != nil {
		t.batch.pendingEarly = append(t.batch.pendingEarly, earlyChange{answerKey{name, key}, nil})
		return nil
	}
	return t.Tx.DeleteEarly(ctx, name, key)
}

// DeferralOf returns the open deferral of a name and a key, locked. A deferral is a task that waits
// for an answer. If no such deferral is open, it returns the last one that is over, or nil, without
// a lock. In a batch it returns a copy with the changes so far.
//
// Returns nil if the deferral was deleted, or has got another key, before its lock. With
// t.Locks.hasty it returns ErrHeld if another transaction holds the open deferral, or if the
// deferral was deleted. Returns ErrLocks if a batch has not locked the open deferral. It then notes
// the task of the deferral, so that the transaction starts again and locks it. Returns errors of
// the store.
func (t *Step) DeferralOf(ctx context.Context, name, key string) (*jobstore.Deferral, error) {
	if t.batch != nil {
		for _, d := range t.batch.deferrals {
			if d.Name == name && d.Key == key && d.Open() {
				return new(*d), nil
			}
		}
	}
	d, err := t.Tx.DeferralOf(ctx, name, key)
	if err != nil || d == nil || !d.Open() {
		return d, err
	}
	if t.batch != nil { // deferrals are locked in order: start the transaction again
		t.batch.missed = d.Task
		return nil, ErrLocks
	}
	found, err := t.lockDeferrals(ctx, t.Locks.hasty, d.Task)
	if err == nil && len(found) == 0 && t.Locks.hasty {
		err = jobstore.ErrHeld // or deleted, which the next try finds
	}
	if err != nil || len(found) == 0 || found[0].Name != name || found[0].Key != key {
		return nil, err
	}
	return &found[0], nil
}

// lockDeferrals locks the deferrals of tasks and returns them. Missing deferrals are left out. With
// free it also leaves out deferrals that another transaction has locked. Without free, or if the
// store is not a HastyLocker, it waits for these. Returns errors of the store.
func (t *Step) lockDeferrals(ctx context.Context, free bool, tasks ...task.ID) ([]jobstore.Deferral, error) {
	if l, ok := capability.As[jobstore.HastyLocker](t.Tx); ok && free {
		return l.FreeDeferrals(ctx, tasks...)
	}
	return t.Tx.Deferrals(ctx, tasks...)
}

// SaveDeferral saves a deferral that DeferralOf has returned locked. In a batch it is written at
// the end of the transaction, if the current change succeeds; a change can save one deferral.
// Outside a batch it is written at once. Returns errors of the store.
func (t *Step) SaveDeferral(ctx context.Context, d *jobstore.Deferral) error {
	if t.batch != nil {
		t.batch.pendingDeferral = d
		return nil
	}
	return t.Tx.SaveDeferrals(ctx, d)
}

// LastOver returns the newest job with this name and key that is over (FINISHED, FAILED or
// CANCELLED), changes of this batch included. last is the newest stored one, or nil. Outside a
// batch it returns last.
func (t *Step) LastOver(name, key string, last *jobstore.Row) *jobstore.Row {
	if t.batch == nil {
		return last
	}
	return t.batch.lastOver(name, key, last)
}

// Creates reports whether an earlier change of this batch creates an open job with this name and
// key. Outside a batch it returns false.
func (t *Step) Creates(name, key string) bool { return t.batch != nil && t.batch.creates(name, key) }

// Shared reports whether other changes may share this transaction, which is then a batch. Reads of
// other jobs are then unsafe: return ErrNeedsOwnTx instead.
func (t *Step) Shared() bool { return t.batch != nil }
