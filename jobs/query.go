package jobs

import (
	"context"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Query returns a job, or [ErrNotFound].
func (s *Service) Query(ctx context.Context, id ID) (Job, error) {
	var j Job
	err := s.c.Store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		var err error
		j, err = tx.Get(ctx, id)
		return err
	})
	if err != nil {
		return Job{}, err
	}
	return j, nil
}

// List returns the jobs that q asks for.
func (s *Service) List(ctx context.Context, q Query) ([]Job, error) {
	var found []Job
	err := s.c.Store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		var err error
		found, err = tx.Find(ctx, q)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}
