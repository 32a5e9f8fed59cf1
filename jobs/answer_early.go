package jobs

import (
	"context"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// keepEarly keeps an answer for a request that is not stored yet. The first one counts.
func (t *step) keepEarly(ctx context.Context, a *Answer) (Receipt, error) {
	there, err := t.early(ctx, a.Name, a.Key)
	if err != nil {
		return Receipt{}, err
	}
	if there != nil {
		return Receipt{Kind: Duplicate}, nil
	}
	e := &jobstore.EarlyAnswer{Name: a.Name, Key: a.Key, Result: a.Result, Refusal: a.Refusal, Expires: micros(t.now.Add(t.s.c.EarlyFor))}
	if t.batch != nil {
		t.batch.pendingEarly = append(t.batch.pendingEarly, earlyChange{answerKey{a.Name, a.Key}, e})
		return Receipt{Kind: Early}, nil
	}
	return Receipt{Kind: Early}, t.tx.SaveEarly(ctx, e)
}

// early returns the early answer of a name and a key that has not expired, or nil.
func (t *step) early(ctx context.Context, name, key string) (*jobstore.EarlyAnswer, error) {
	if t.batch != nil {
		if e, changed := t.batch.early[answerKey{name, key}]; changed {
			return e, nil
		}
	}
	e, err := t.tx.Early(ctx, name, key)
	if err != nil || e == nil || !e.Expires.After(t.now) {
		return nil, err
	}
	return e, nil
}

// claimEarly returns the early answer to the key of j, if there is one, and takes it away.
func (t *step) claimEarly(ctx context.Context, j *Row) (*Answer, error) {
	e, err := t.early(ctx, j.Name, j.Key)
	if e == nil || err != nil {
		return nil, err
	}
	a := &Answer{Name: j.Name, Key: j.Key, Result: e.Result, Refusal: e.Refusal}
	if t.batch != nil {
		t.batch.pendingEarly = append(t.batch.pendingEarly, earlyChange{answerKey{j.Name, j.Key}, nil})
		return a, nil
	}
	return a, t.tx.DeleteEarly(ctx, j.Name, j.Key)
}

// answerKey names an answer.
type answerKey struct{ name, key string }

// earlyChange is an early answer as it is after a change in a batch; nil: there is none.
type earlyChange struct {
	key answerKey
	now *jobstore.EarlyAnswer
}
