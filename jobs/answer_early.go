package jobs

import (
	"context"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// keepEarly stores an answer whose request is not stored yet. The first one counts.
func (s *Service) keepEarly(ctx context.Context, t *txn.Step, a *Answer) (Receipt, error) {
	there, err := t.Early(ctx, a.Name, a.Key)
	if err != nil {
		return Receipt{}, err
	}
	if there != nil {
		return Receipt{Kind: Duplicate}, nil
	}
	e := &jobstore.EarlyAnswer{Name: a.Name, Key: a.Key, Result: a.Result, Refusal: a.Refusal, Expires: rules.Micros(t.Now.Add(s.c.EarlyFor))}
	return Receipt{Kind: Early}, t.SaveEarly(ctx, e)
}

// claimEarly returns and deletes the early answer to the key of j. nil: there is none.
func (s *Service) claimEarly(ctx context.Context, t *txn.Step, j *Row) (*Answer, error) {
	e, err := t.Early(ctx, j.Name, j.Key)
	if e == nil || err != nil {
		return nil, err
	}
	return &Answer{Name: j.Name, Key: j.Key, Result: e.Result, Refusal: e.Refusal}, t.DeleteEarly(ctx, j.Name, j.Key)
}
