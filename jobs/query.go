package jobs

import (
	"context"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Query returns a job. Returns [ErrNotFound] if the job does not exist.
func (s *Service) Query(ctx context.Context, id ID) (Job, error) {
	r, err := s.Row(ctx, id)
	return r.Job, err
}

// Filter selects the jobs that match all set fields. At most one of Name, Queue and Parent is set,
// and Key needs a Name.
type Filter struct {
	// Name is the exact name. "": any.
	Name string
	// Key is the exact Key. "": any.
	Key string
	// Queue is the exact queue. "": any.
	Queue string
	// Parent is the parent. 0: any.
	Parent ID
	// States holds the wanted states. nil: any.
	States []State
	// After limits the result to ids above this one.
	After ID
	// Limit is the most jobs, the first ones. 0: no limit.
	Limit int
}

// List returns jobs in the order of their ids.
func (s *Service) List(ctx context.Context, f Filter) ([]Job, error) {
	rows, err := s.Rows(ctx, f)
	if err != nil {
		return nil, err
	}
	found := make([]Job, len(rows))
	for i := range rows {
		found[i] = rows[i].Job
	}
	return found, nil
}

// Rows is List with the fields of the store, for tools and protocols.
func (s *Service) Rows(ctx context.Context, f Filter) ([]Row, error) {
	of := 0
	for _, set := range []bool{f.Name != "", f.Queue != "", f.Parent != 0} {
		if set {
			of++
		}
	}
	if of > 1 || f.Key != "" && f.Name == "" {
		return nil, &FieldError{Field: "filter", Problem: "one of Name, Queue and Parent, and a Key with a Name"}
	}
	return s.view(ctx, func(ctx context.Context, tx jobstore.Tx) ([]Row, error) {
		p := jobstore.Page{States: f.States, After: f.After, Limit: f.Limit}
		switch {
		case f.Key != "":
			return tx.OfKey(ctx, f.Name, f.Key, p)
		case f.Name != "":
			return tx.Named(ctx, f.Name, p)
		case f.Queue != "":
			return tx.OfQueue(ctx, f.Queue, p)
		case f.Parent != 0:
			return tx.Children(ctx, f.Parent, p)
		}
		return tx.All(ctx, p)
	})
}

// view reads jobs.
func (s *Service) view(ctx context.Context, read func(ctx context.Context, tx jobstore.Tx) ([]Row, error)) (found []Row, err error) {
	err = s.c.Store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		var err error
		found, err = read(ctx, tx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Row is Query with the fields of the store, for tools and protocols.
func (s *Service) Row(ctx context.Context, id ID) (Row, error) {
	var r Row
	err := s.c.Store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		var err error
		r, err = tx.Get(ctx, id)
		return err
	})
	if err != nil {
		return Row{}, err
	}
	return r, nil
}

// Messages returns the messages of the tasks with conditions that these jobs were made of. Other
// jobs are left out.
func (s *Service) Messages(ctx context.Context, ids ...ID) (map[ID][]byte, error) {
	var found map[ID][]byte
	err := s.c.Store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		var err error
		found, err = tx.Messages(ctx, ids...)
		return err
	})
	return found, err
}
