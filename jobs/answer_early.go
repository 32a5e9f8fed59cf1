package jobs

import (
	"context"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// storeEarly stores an answer that came before its request, until Config.EarlyFor has passed, and
// returns the receipt Early. If an early answer is already stored for the key, it changes nothing
// and returns the receipt Duplicate. The receipt names no job. Call it with the key locked. Returns
// errors of the store; ignore the receipt then.
func (s *Service) storeEarly(ctx context.Context, t *txn.Step, a *Answer) (Receipt, error) {
	stored, err := t.Early(ctx, a.Name, a.Key)
	if err != nil {
		return Receipt{}, err
	}
	if stored != nil {
		return Receipt{Kind: Duplicate}, nil
	}
	e := &jobstore.EarlyAnswer{Name: a.Name, Key: a.Key, Result: a.Result, Refusal: a.Refusal, Expires: rules.Micros(t.Now.Add(s.c.EarlyFor))}
	return Receipt{Kind: Early}, t.SaveEarly(ctx, e)
}

// claimEarly deletes the early answer to the name and key of j and returns it. It does not change
// j. Returns nil if no early answer is stored, or if it has expired. Call it with the key locked.
// Returns errors of the store.
func (s *Service) claimEarly(ctx context.Context, t *txn.Step, j *Row) (*Answer, error) {
	e, err := t.Early(ctx, j.Name, j.Key)
	if e == nil || err != nil {
		return nil, err
	}
	return &Answer{Name: j.Name, Key: j.Key, Result: e.Result, Refusal: e.Refusal}, t.DeleteEarly(ctx, j.Name, j.Key)
}
