package txn

import (
	"context"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// answerKey names an answer.
type answerKey struct{ name, key string }

// earlyChange is an early answer after a change in a batch; nil: there is none.
type earlyChange struct {
	key answerKey
	now *jobstore.EarlyAnswer
}

// Early returns the early answer of a name and a key that has not expired, or nil.
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

// SaveEarly keeps an answer for a request that is not stored yet.
func (t *Step) SaveEarly(ctx context.Context, e *jobstore.EarlyAnswer) error {
	if t.batch != nil {
		t.batch.pendingEarly = append(t.batch.pendingEarly, earlyChange{answerKey{e.Name, e.Key}, e})
		return nil
	}
	return t.Tx.SaveEarly(ctx, e)
}

// DeleteEarly deletes the early answer of a name and a key.
func (t *Step) DeleteEarly(ctx context.Context, name, key string) error {
	if t.batch != nil {
		t.batch.pendingEarly = append(t.batch.pendingEarly, earlyChange{answerKey{name, key}, nil})
		return nil
	}
	return t.Tx.DeleteEarly(ctx, name, key)
}

// DeferralOf returns the open deferral of a name and a key and locks it. If none is open it returns
// the last one that is over, or nil.
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
	if t.batch != nil { // rows are locked in their order: from the start
		t.batch.missed = d.Task
		return nil, ErrLocks
	}
	found, err := t.Tx.Deferrals(ctx, d.Task)
	if err != nil || len(found) == 0 || found[0].Name != name || found[0].Key != key {
		return nil, err
	}
	return &found[0], nil
}

// SaveDeferral saves a deferral that DeferralOf has returned.
func (t *Step) SaveDeferral(ctx context.Context, d *jobstore.Deferral) error {
	if t.batch != nil {
		t.batch.pendingDeferral = d
		return nil
	}
	return t.Tx.SaveDeferrals(ctx, d)
}

// LastOver returns the newest job of a key that is over. last is the newest one that the store has.
func (t *Step) LastOver(name, key string, last *jobstore.Row) *jobstore.Row {
	if t.batch == nil {
		return last
	}
	return t.batch.lastOver(name, key, last)
}

// Makes reports whether another change of this transaction makes a job of a key.
func (t *Step) Makes(name, key string) bool { return t.batch != nil && t.batch.makes(name, key) }

// Shared reports whether other changes share this transaction.
func (t *Step) Shared() bool { return t.batch != nil }
