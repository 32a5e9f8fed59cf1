package jobs

import (
	"context"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// keepEarly keeps an answer for a request that is not stored yet. The first one counts.
func (s *Service) keepEarly(ctx context.Context, t *step, a *Answer) (Receipt, error) {
	there, err := t.early(ctx, a.Name, a.Key)
	if err != nil {
		return Receipt{}, err
	}
	if there != nil {
		return Receipt{Kind: Duplicate}, nil
	}
	e := &jobstore.EarlyAnswer{Name: a.Name, Key: a.Key, Result: a.Result, Refusal: a.Refusal, Expires: micros(t.now.Add(s.c.EarlyFor))}
	return Receipt{Kind: Early}, t.saveEarly(ctx, e)
}

// claimEarly returns the early answer to the key of j, if there is one, and takes it away.
func (s *Service) claimEarly(ctx context.Context, t *step, j *Row) (*Answer, error) {
	e, err := t.early(ctx, j.Name, j.Key)
	if e == nil || err != nil {
		return nil, err
	}
	return &Answer{Name: j.Name, Key: j.Key, Result: e.Result, Refusal: e.Refusal}, t.deleteEarly(ctx, j.Name, j.Key)
}
