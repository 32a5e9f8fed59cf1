package sqljobs

import (
	"context"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Jobs implements [jobstore.Finder]. It returns the existing jobs with these ids, and locks them
// except in a View.
func (t *tx) Jobs(ctx context.Context, ids ...jobstore.ID) ([]jobstore.Row, error) {
	if len(ids) == 0 {
		return nil, t.err
	}
	return t.find(ctx, query{ids: ids})
}

// All implements [jobstore.Finder]. It returns a page of all jobs and locks nothing.
func (t *tx) All(ctx context.Context, p jobstore.Page) ([]jobstore.Row, error) {
	return t.find(ctx, query{Page: p})
}

// Named implements [jobstore.Finder]. It returns a page of the jobs with a name and locks nothing.
func (t *tx) Named(ctx context.Context, name string, p jobstore.Page) ([]jobstore.Row, error) {
	if name == "" {
		return nil, t.err
	}
	return t.find(ctx, query{Page: p, name: name})
}

// OfKey implements [jobstore.Finder]. It returns a page of the jobs with a name and an answer key.
// It locks nothing.
func (t *tx) OfKey(ctx context.Context, name, key string, p jobstore.Page) ([]jobstore.Row, error) {
	if name == "" || key == "" {
		return nil, t.err
	}
	return t.find(ctx, query{Page: p, name: name, key: key})
}

// LastOver implements [jobstore.Finder]. It returns the last finished, failed or cancelled job with
// a name and an answer key, or nil.
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

// OfQueue implements [jobstore.Finder]. It returns a page of the jobs of a queue and locks nothing.
func (t *tx) OfQueue(ctx context.Context, queue string, p jobstore.Page) ([]jobstore.Row, error) {
	if queue == "" {
		return nil, t.err
	}
	return t.find(ctx, query{Page: p, queue: queue})
}

// Children implements [jobstore.Finder]. It returns a page of the jobs with this parent and locks
// nothing.
func (t *tx) Children(ctx context.Context, parent jobstore.ID, p jobstore.Page) ([]jobstore.Row, error) {
	if parent == 0 {
		return nil, t.err
	}
	return t.find(ctx, query{Page: p, parent: parent})
}

// Due implements [jobstore.Finder]. It returns at most limit due jobs that d selects, see findDue.
func (t *tx) Due(ctx context.Context, d jobstore.Due, limit int) ([]jobstore.Row, error) {
	if t.err != nil {
		return nil, t.err
	}
	found, err := t.findDue(ctx, d, limit)
	return found, t.fail("due", err)
}

// Line implements [jobstore.Finder]. It returns at most limit jobs of a queue that l selects, see
// findLine.
func (t *tx) Line(ctx context.Context, l jobstore.Line, limit int) ([]jobstore.Row, error) {
	if t.err != nil {
		return nil, t.err
	}
	found, err := t.findLine(ctx, &l, limit)
	return found, t.fail("line", err)
}
