package memjobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// finder implements [jobstore.Finder] for tx and view, which embed it.
type finder struct{ in reader }

// reader is a tx or a view.
type reader interface {
	// find returns copies of the jobs that by returns.
	find(ctx context.Context, by func(t *table) ([]*record, error)) ([]jobstore.Row, error)
	// now returns the store's time. Call it with the table locked.
	now() time.Time
}

// find calls by with the table and returns copies, without Message, of the jobs that by returns.
// Returns the error of ready if the transaction cannot be used. After an error of by it returns
// that error, and the transaction cannot commit. It implements reader.
func (tx *tx) find(ctx context.Context, by func(t *table) ([]*record, error)) ([]jobstore.Row, error) {
	if err := tx.ready(ctx); err != nil {
		return nil, err
	}
	found, err := tx.core.find(by)
	if err != nil {
		return nil, tx.fail(err)
	}
	return found, nil
}

// find calls by with the table and returns copies, without Message, of the jobs that by returns.
// It waits for the lock of the table and holds it while by runs. Returns the error of read or of
// by. It implements reader.
func (v *view) find(ctx context.Context, by func(t *table) ([]*record, error)) (found []jobstore.Row, err error) {
	var bad error
	err = v.read(ctx, func() { found, bad = v.core.find(by) })
	return found, errors.Join(err, bad)
}

// find returns copies, without Message, of the jobs that by returns. It returns the error of by.
// Call it with the table locked.
func (c *core) find(by func(t *table) ([]*record, error)) ([]jobstore.Row, error) {
	found, err := by(c.table)
	if err != nil {
		return nil, err
	}
	out := make([]jobstore.Row, len(found))
	for i, r := range found {
		out[i] = clone(&r.job)
	}
	return out, nil
}

// checkLimit returns an error that wraps ErrBadJob if limit is below least.
func checkLimit(limit, least int) error {
	if limit < least {
		return fmt.Errorf("memjobs: %w: the limit %d is too small", jobstore.ErrBadJob, limit)
	}
	return nil
}

// byQuery returns a function that finds the records that q selects (table.find). The function
// returns ErrBadJob for a negative limit.
func byQuery(q query) func(t *table) ([]*record, error) {
	return func(t *table) ([]*record, error) {
		if err := checkLimit(q.Limit, 0); err != nil {
			return nil, err
		}
		return t.find(&q), nil
	}
}

// findNothing returns no records and no error.
func findNothing(*table) ([]*record, error) { return nil, nil }

// lastOver returns a function that finds the job with the highest id that has a name and a key and
// is over. It finds no record if no such job exists, or if name or key is empty.
func lastOver(name, key string) func(t *table) ([]*record, error) {
	return func(t *table) ([]*record, error) {
		o := t.answers[[2]string{name, key}]
		if o == nil || name == "" || key == "" {
			return nil, nil
		}
		for _, block := range slices.Backward(o.blocks) {
			for _, e := range slices.Backward(block) {
				if e.rec.job.State.Over() {
					return []*record{e.rec}, nil
				}
			}
		}
		return nil, nil
	}
}

// ofDue returns a function that finds due jobs without a queue (table.findDue). The function
// returns ErrBadJob for a limit below 1. now is called for a zero d.By, with the table locked.
func ofDue(d jobstore.Due, limit int, now func() time.Time) func(t *table) ([]*record, error) {
	return func(t *table) ([]*record, error) {
		if err := checkLimit(limit, 1); err != nil {
			return nil, err
		}
		return t.findDue(&d.Selector, until(d.By, now), limit), nil
	}
}

// ofLine returns a function that finds due jobs of a queue (table.findLine). The function returns
// ErrBadJob for a limit below 1. now is called for a zero l.By, with the table locked.
func ofLine(l jobstore.Line, limit int, now func() time.Time) func(t *table) ([]*record, error) {
	return func(t *table) ([]*record, error) {
		if err := checkLimit(limit, 1); err != nil {
			return nil, err
		}
		return t.findLine(&l, now, limit), nil
	}
}

// Jobs returns the jobs with these ids, each once, in the order of ids. Missing ids are left out;
// without ids the result is empty. Returns the error of tx.ready or view.read if the transaction
// cannot be used. It implements [jobstore.Finder].
func (f finder) Jobs(ctx context.Context, ids ...jobstore.ID) ([]jobstore.Row, error) {
	if len(ids) == 0 {
		return f.in.find(ctx, findNothing)
	}
	return f.in.find(ctx, byQuery(query{ids: ids}))
}

// All returns a page of all jobs. A negative Limit is an ErrBadJob, here and in the other methods
// with a Page; in an Update the transaction then cannot commit. Returns the error of tx.ready or
// view.read if the transaction cannot be used. It implements [jobstore.Finder].
func (f finder) All(ctx context.Context, p jobstore.Page) ([]jobstore.Row, error) {
	return f.in.find(ctx, byQuery(query{Page: p}))
}

// Named returns a page of the jobs with a name. An empty name has no jobs. A negative Limit is an
// ErrBadJob; in an Update the transaction then cannot commit. Returns the error of tx.ready or
// view.read if the transaction cannot be used. It implements [jobstore.Finder].
func (f finder) Named(ctx context.Context, name string, p jobstore.Page) ([]jobstore.Row, error) {
	if name == "" {
		return f.in.find(ctx, findNothing)
	}
	return f.in.find(ctx, byQuery(query{Page: p, name: name}))
}

// OfKey returns a page of the jobs with a name and a Key. An empty name or key has no jobs. A
// negative Limit is an ErrBadJob; in an Update the transaction then cannot commit. Returns the
// error of tx.ready or view.read if the transaction cannot be used. It implements
// [jobstore.Finder].
func (f finder) OfKey(ctx context.Context, name, key string, p jobstore.Page) ([]jobstore.Row, error) {
	if name == "" || key == "" {
		return f.in.find(ctx, findNothing)
	}
	return f.in.find(ctx, byQuery(query{Page: p, name: name, key: key}))
}

// LastOver returns a copy of the newest job, by id, with a name and a Key that is over. Returns
// nil if no such job exists, or if name or key is empty. Returns the error of tx.ready or
// view.read if the transaction cannot be used. It implements [jobstore.Finder].
func (f finder) LastOver(ctx context.Context, name, key string) (*jobstore.Row, error) {
	found, err := f.in.find(ctx, lastOver(name, key))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// First returns, for each group, the lowest id of its jobs in one of the states; nil states mean
// any state. Groups without such a job are left out. Returns the error of tx.ready or view.read if
// the transaction cannot be used. It implements [jobstore.Finder].
func (f finder) First(ctx context.Context, states []jobstore.State, groups ...jobstore.Group) (map[jobstore.Group]jobstore.ID, error) {
	var first map[jobstore.Group]jobstore.ID
	_, err := f.in.find(ctx, func(t *table) ([]*record, error) {
		first = t.lowestIDs(states, groups)
		return nil, nil
	})
	return first, err
}

// OfQueue returns a page of the jobs of a queue. An empty queue has no jobs. A negative Limit is
// an ErrBadJob; in an Update the transaction then cannot commit. Returns the error of tx.ready or
// view.read if the transaction cannot be used. It implements [jobstore.Finder].
func (f finder) OfQueue(ctx context.Context, queue string, p jobstore.Page) ([]jobstore.Row, error) {
	if queue == "" {
		return f.in.find(ctx, findNothing)
	}
	return f.in.find(ctx, byQuery(query{Page: p, queue: queue}))
}

// Children returns a page of the children of a job. A parent of 0 has no children. A negative
// Limit is an ErrBadJob; in an Update the transaction then cannot commit. Returns the error of
// tx.ready or view.read if the transaction cannot be used. It implements [jobstore.Finder].
func (f finder) Children(ctx context.Context, parent jobstore.ID, p jobstore.Page) ([]jobstore.Row, error) {
	if parent == 0 {
		return f.in.find(ctx, findNothing)
	}
	return f.in.find(ctx, byQuery(query{Page: p, parent: parent}))
}

// Due returns up to limit due jobs without a queue, in the order of Priority, Due and ID. A limit
// below 1 is an ErrBadJob; in an Update the transaction then cannot commit. Returns the error of
// tx.ready or view.read if the transaction cannot be used. It implements [jobstore.Finder].
func (f finder) Due(ctx context.Context, d jobstore.Due, limit int) ([]jobstore.Row, error) {
	return f.in.find(ctx, ofDue(d, limit, f.in.now))
}

// Line returns up to limit due jobs of a queue in the order that l asks for. A limit below 1 is an
// ErrBadJob; in an Update the transaction then cannot commit. Returns the error of tx.ready or
// view.read if the transaction cannot be used. It implements [jobstore.Finder].
func (f finder) Line(ctx context.Context, l jobstore.Line, limit int) ([]jobstore.Row, error) {
	return f.in.find(ctx, ofLine(l, limit, f.in.now))
}
