package jobs

import (
	"context"
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Query returns a job. Returns [ErrNotFound] if the job does not exist, and errors of the store.
func (s *Service) Query(ctx context.Context, id ID) (Job, error) {
	r, err := s.Row(ctx, id)
	return r.Job, err
}

// Filter selects the jobs that match all set fields. At most one of Name, Queue and Parent may be
// set. Key requires Name.
type Filter struct {
	// Name is the exact name. "": any name.
	Name string
	// Key is the exact Key. "": any key.
	Key string
	// Queue is the exact queue. "": any queue.
	Queue string
	// Parent is the id of the parent. 0: any parent.
	Parent ID
	// States contains the wanted states. nil: any state.
	States []State
	// After limits the result to ids above this one.
	After ID
	// Limit is the maximum number of jobs. The jobs with the lowest ids are returned. 0: no limit.
	Limit int
}

// List returns the jobs that f selects, in the order of ids; an empty list if it selects no job.
// Returns a [FieldError] if f sets more than one of Name, Queue and Parent, Key without Name, or an
// unknown state. Returns errors of the store.
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

// Rows is [Service.List] with the fields that only stores and workers use ([Row]), for tools and
// protocols. Returns the errors of List.
func (s *Service) Rows(ctx context.Context, f Filter) ([]Row, error) {
	of := 0
	for _, set := range []bool{f.Name != "", f.Queue != "", f.Parent != 0} {
		if set {
			of++
		}
	}
	if of > 1 || f.Key != "" && f.Name == "" {
		return nil, &FieldError{Field: "filter", Problem: "set at most one of Name, Queue and Parent, and Key only together with Name"}
	}
	for _, state := range f.States {
		if valid := jobstore.States(); !slices.Contains(valid, state) {
			return nil, &FieldError{Field: "filter", Problem: fmt.Sprintf("state %q is unknown, want some of %v", state, valid)}
		}
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

// view calls read in a read transaction of the store and returns the jobs that read returned. After
// an error it returns no jobs.
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

// Row is [Service.Query] with the fields that only stores and workers use ([Row]), for tools and
// protocols. Returns [ErrNotFound] if the job does not exist. Returns errors of the store.
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

// Messages returns, by job id, the messages of the tasks with conditions ([task.Conditions]) that
// these jobs were created for. Other jobs, and ids without a job, are left out. Returns errors of
// the store.
func (s *Service) Messages(ctx context.Context, ids ...ID) (map[ID][]byte, error) {
	var found map[ID][]byte
	err := s.c.Store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		var err error
		found, err = tx.Messages(ctx, ids...)
		return err
	})
	return found, err
}
