package jobs

import "context"

// Query returns a job, or [ErrNotFound].
func (s *Service) Query(ctx context.Context, id ID) (Job, error) {
	r, err := s.Row(ctx, id)
	return r.Job, err
}

// List returns the jobs that q asks for.
func (s *Service) List(ctx context.Context, q Query) ([]Job, error) {
	rows, err := s.Rows(ctx, q)
	if err != nil {
		return nil, err
	}
	found := make([]Job, len(rows))
	for i := range rows {
		found[i] = rows[i].Job
	}
	return found, nil
}

// Row is Query with what the store keeps on top, for tools and protocols.
func (s *Service) Row(ctx context.Context, id ID) (Row, error) {
	var r Row
	err := s.c.Store.View(ctx, func(ctx context.Context, tx Tx) error {
		var err error
		r, err = tx.Get(ctx, id)
		return err
	})
	if err != nil {
		return Row{}, err
	}
	return r, nil
}

// Messages returns the messages of the tasks with conditions that these jobs were made of. Other jobs are left out.
func (s *Service) Messages(ctx context.Context, ids ...ID) (map[ID][]byte, error) {
	var found map[ID][]byte
	err := s.c.Store.View(ctx, func(ctx context.Context, tx Tx) error {
		var err error
		found, err = tx.Messages(ctx, ids...)
		return err
	})
	return found, err
}

// Rows is List with what the store keeps on top, likewise.
func (s *Service) Rows(ctx context.Context, q Query) ([]Row, error) {
	var found []Row
	err := s.c.Store.View(ctx, func(ctx context.Context, tx Tx) error {
		var err error
		found, err = tx.Find(ctx, q)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}
