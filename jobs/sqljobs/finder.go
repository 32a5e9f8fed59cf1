package sqljobs

import (
	"context"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Jobs returns the existing jobs with these ids, in the order of ids. Except in a View it locks
// them, and waits for other holders. A database error fails the transaction, and later calls
// return it. It implements [jobstore.Finder].
func (t *tx) Jobs(ctx context.Context, ids ...jobstore.ID) ([]jobstore.Row, error) {
	if len(ids) == 0 {
		return nil, t.err
	}
	return t.find(ctx, query{ids: ids})
}

// FreeJobs returns and locks jobs as Jobs does, but leaves out those that other transactions have
// locked. It does not wait. On SQLite it is Jobs. It implements [jobstore.HastyLocker].
func (t *tx) FreeJobs(ctx context.Context, ids ...jobstore.ID) ([]jobstore.Row, error) {
	if len(ids) == 0 {
		return nil, t.err
	}
	return t.find(ctx, query{ids: ids, free: true})
}

// All returns a page of all jobs, in the order of ids, and locks nothing. A database error fails
// the transaction, and later calls return it. It implements [jobstore.Finder].
func (t *tx) All(ctx context.Context, p jobstore.Page) ([]jobstore.Row, error) {
	return t.find(ctx, query{Page: p})
}

// Named returns a page of the jobs with a name and locks nothing. An empty or invalid name selects
// no job. A database error fails the transaction, and later calls return it. It implements
// [jobstore.Finder].
func (t *tx) Named(ctx context.Context, name string, p jobstore.Page) ([]jobstore.Row, error) {
	if name == "" {
		return nil, t.err
	}
	return t.find(ctx, query{Page: p, name: name})
}

// OfKey returns a page of the jobs with a name and an answer key, and locks nothing. An empty or
// invalid name or key selects no job. A database error fails the transaction, and later calls
// return it. It implements [jobstore.Finder].
func (t *tx) OfKey(ctx context.Context, name, key string, p jobstore.Page) ([]jobstore.Row, error) {
	if name == "" || key == "" {
		return nil, t.err
	}
	return t.find(ctx, query{Page: p, name: name, key: key})
}

// LastOver returns the finished, failed or cancelled job with the highest id among those with a
// name and an answer key. Returns nil if no such job exists, or the name or the key is empty or
// invalid. It locks nothing. A database error fails the transaction, and later calls return it. It
// implements [jobstore.Finder].
func (t *tx) LastOver(ctx context.Context, name, key string) (*jobstore.Row, error) {
	if name == "" || key == "" {
		return nil, t.err
	}
	over := jobstore.Page{States: []jobstore.State{jobstore.Finished, jobstore.Failed, jobstore.Cancelled}, Limit: 1}
	found, err := t.find(ctx, query{Page: over, name: name, key: key, last: true})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// OfQueue returns a page of the jobs of a queue and locks nothing. An empty or invalid queue name
// selects no job. A database error fails the transaction, and later calls return it. It implements
// [jobstore.Finder].
func (t *tx) OfQueue(ctx context.Context, queue string, p jobstore.Page) ([]jobstore.Row, error) {
	if queue == "" {
		return nil, t.err
	}
	return t.find(ctx, query{Page: p, queue: queue})
}

// Children returns a page of the jobs with this parent and locks nothing. The parent 0 selects no
// job. A database error fails the transaction, and later calls return it. It implements
// [jobstore.Finder].
func (t *tx) Children(ctx context.Context, parent jobstore.ID, p jobstore.Page) ([]jobstore.Row, error) {
	if parent == 0 {
		return nil, t.err
	}
	return t.find(ctx, query{Page: p, parent: parent})
}

// Due returns at most limit due jobs that d selects, in the order of claims. It changes no job. In
// an update on PostgreSQL it locks them and skips locked ones. Returns ErrBadJob if limit is not
// positive. This and any database error fail the transaction, and later calls return it. It
// implements [jobstore.Finder].
func (t *tx) Due(ctx context.Context, d jobstore.Due, limit int) ([]jobstore.Row, error) {
	if t.err != nil {
		return nil, t.err
	}
	found, err := t.findDue(ctx, d, limit)
	return found, t.fail("due", err)
}

// Line returns at most limit due jobs of a queue that l selects, in the queue's order. It changes
// no job. In an update on PostgreSQL it locks them and skips locked ones. Returns ErrBadJob if
// limit is not positive. This and any database error fail the transaction, and later calls return
// it. It implements [jobstore.Finder].
func (t *tx) Line(ctx context.Context, l jobstore.Line, limit int) ([]jobstore.Row, error) {
	if t.err != nil {
		return nil, t.err
	}
	found, err := t.findLine(ctx, &l, limit)
	return found, t.fail("line", err)
}
