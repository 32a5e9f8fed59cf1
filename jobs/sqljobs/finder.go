package sqljobs

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
)

// Jobs implements [jobs.Finder].
func (t *tx) Jobs(ctx context.Context, ids ...jobs.ID) ([]jobs.Row, error) {
	if len(ids) == 0 {
		return nil, t.err
	}
	return t.find(ctx, query{ids: ids})
}

// All implements [jobs.Finder].
func (t *tx) All(ctx context.Context, p jobs.Page) ([]jobs.Row, error) {
	return t.find(ctx, query{Page: p})
}

// Named implements [jobs.Finder].
func (t *tx) Named(ctx context.Context, name string, p jobs.Page) ([]jobs.Row, error) {
	if name == "" {
		return nil, t.err
	}
	return t.find(ctx, query{Page: p, name: name})
}

// OfKey implements [jobs.Finder].
func (t *tx) OfKey(ctx context.Context, name, key string, p jobs.Page) ([]jobs.Row, error) {
	if name == "" || key == "" {
		return nil, t.err
	}
	return t.find(ctx, query{Page: p, name: name, key: key})
}

// OfUniqueKey implements [jobs.Finder].
func (t *tx) OfUniqueKey(ctx context.Context, name, key string, p jobs.Page) ([]jobs.Row, error) {
	if name == "" || key == "" {
		return nil, t.err
	}
	return t.find(ctx, query{Page: p, name: name, uniqueKey: key})
}

// OfSequence implements [jobs.Finder].
func (t *tx) OfSequence(ctx context.Context, key string, p jobs.Page) ([]jobs.Row, error) {
	if key == "" {
		return nil, t.err
	}
	return t.find(ctx, query{Page: p, sequence: key})
}

// OfQueue implements [jobs.Finder].
func (t *tx) OfQueue(ctx context.Context, queue string, p jobs.Page) ([]jobs.Row, error) {
	if queue == "" {
		return nil, t.err
	}
	return t.find(ctx, query{Page: p, queue: queue})
}

// Children implements [jobs.Finder].
func (t *tx) Children(ctx context.Context, parent jobs.ID, p jobs.Page) ([]jobs.Row, error) {
	if parent == 0 {
		return nil, t.err
	}
	return t.find(ctx, query{Page: p, parent: parent})
}

// Expired implements [jobs.Finder].
func (t *tx) Expired(ctx context.Context, by time.Time, limit int) ([]jobs.Row, error) {
	if by.IsZero() {
		return nil, t.err
	}
	return t.find(ctx, query{Page: jobs.Page{Limit: limit}, expired: by})
}

// Due implements [jobs.Finder].
func (t *tx) Due(ctx context.Context, d jobs.Due, limit int) ([]jobs.Row, error) {
	if t.err != nil {
		return nil, t.err
	}
	found, err := t.findDue(ctx, d, limit)
	return found, t.fail("due", err)
}

// Line implements [jobs.Finder].
func (t *tx) Line(ctx context.Context, l jobs.Line, limit int) ([]jobs.Row, error) {
	if t.err != nil {
		return nil, t.err
	}
	found, err := t.findLine(ctx, &l, limit)
	return found, t.fail("line", err)
}
