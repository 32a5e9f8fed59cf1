package memjobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// finder is what tx and view embed: the questions of [jobstore.Finder], which both answer alike.
type finder struct{ in reader }

// reader is a tx or a view.
type reader interface {
	// find returns copies of the jobs that by finds.
	find(ctx context.Context, by func(t *table) ([]*record, error)) ([]jobstore.Row, error)
	// now returns the time. The caller holds the table.
	now() time.Time
}

// find implements reader.
func (tx *tx) find(ctx context.Context, by func(t *table) ([]*record, error)) ([]jobstore.Row, error) {
	if err := tx.ready(ctx); err != nil {
		return nil, err
	}
	found, err := tx.core.find(by)
	if err != nil {
		return nil, tx.spoil(err)
	}
	return found, nil
}

// find implements reader.
func (v *view) find(ctx context.Context, by func(t *table) ([]*record, error)) (found []jobstore.Row, err error) {
	var bad error
	err = v.read(ctx, func() { found, bad = v.core.find(by) })
	return found, errors.Join(err, bad)
}

// find returns copies of the jobs that by finds.
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

// limited refuses a limit below least.
func limited(limit, least int) error {
	if limit < least {
		return fmt.Errorf("memjobs: %w: a limit of %d", jobstore.ErrBadJob, limit)
	}
	return nil
}

// asked finds what q asks for.
func asked(q query) func(t *table) ([]*record, error) {
	return func(t *table) ([]*record, error) {
		if err := limited(q.Limit, 0); err != nil {
			return nil, err
		}
		return t.find(&q), nil
	}
}

// nothing finds nothing.
func nothing(*table) ([]*record, error) { return nil, nil }

// lastOver finds the newest job of a name and a key that is over.
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

func ofDue(d jobstore.Due, limit int, now func() time.Time) func(t *table) ([]*record, error) {
	return func(t *table) ([]*record, error) {
		if err := limited(limit, 1); err != nil {
			return nil, err
		}
		return t.findDue(&d.Selector, until(d.By, now), limit), nil
	}
}

func ofLine(l jobstore.Line, limit int, now func() time.Time) func(t *table) ([]*record, error) {
	return func(t *table) ([]*record, error) {
		if err := limited(limit, 1); err != nil {
			return nil, err
		}
		return t.findLine(&l, now, limit), nil
	}
}

// Jobs implements [jobstore.Finder].
func (f finder) Jobs(ctx context.Context, ids ...jobstore.ID) ([]jobstore.Row, error) {
	if len(ids) == 0 {
		return f.in.find(ctx, nothing)
	}
	return f.in.find(ctx, asked(query{ids: ids}))
}

// All implements [jobstore.Finder].
func (f finder) All(ctx context.Context, p jobstore.Page) ([]jobstore.Row, error) {
	return f.in.find(ctx, asked(query{Page: p}))
}

// Named implements [jobstore.Finder].
func (f finder) Named(ctx context.Context, name string, p jobstore.Page) ([]jobstore.Row, error) {
	if name == "" {
		return f.in.find(ctx, nothing)
	}
	return f.in.find(ctx, asked(query{Page: p, name: name}))
}

// OfKey implements [jobstore.Finder].
func (f finder) OfKey(ctx context.Context, name, key string, p jobstore.Page) ([]jobstore.Row, error) {
	if name == "" || key == "" {
		return f.in.find(ctx, nothing)
	}
	return f.in.find(ctx, asked(query{Page: p, name: name, key: key}))
}

// LastOver implements [jobstore.Finder].
func (f finder) LastOver(ctx context.Context, name, key string) (*jobstore.Row, error) {
	found, err := f.in.find(ctx, lastOver(name, key))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// OfUniqueKey implements [jobstore.Finder].
func (f finder) OfUniqueKey(ctx context.Context, name, key string, p jobstore.Page) ([]jobstore.Row, error) {
	if name == "" || key == "" {
		return f.in.find(ctx, nothing)
	}
	return f.in.find(ctx, asked(query{Page: p, name: name, uniqueKey: key}))
}

// OfSequence implements [jobstore.Finder].
func (f finder) OfSequence(ctx context.Context, key string, p jobstore.Page) ([]jobstore.Row, error) {
	if key == "" {
		return f.in.find(ctx, nothing)
	}
	return f.in.find(ctx, asked(query{Page: p, sequence: key}))
}

// OfQueue implements [jobstore.Finder].
func (f finder) OfQueue(ctx context.Context, queue string, p jobstore.Page) ([]jobstore.Row, error) {
	if queue == "" {
		return f.in.find(ctx, nothing)
	}
	return f.in.find(ctx, asked(query{Page: p, queue: queue}))
}

// Children implements [jobstore.Finder].
func (f finder) Children(ctx context.Context, parent jobstore.ID, p jobstore.Page) ([]jobstore.Row, error) {
	if parent == 0 {
		return f.in.find(ctx, nothing)
	}
	return f.in.find(ctx, asked(query{Page: p, parent: parent}))
}

// Due implements [jobstore.Finder].
func (f finder) Due(ctx context.Context, d jobstore.Due, limit int) ([]jobstore.Row, error) {
	return f.in.find(ctx, ofDue(d, limit, f.in.now))
}

// Line implements [jobstore.Finder].
func (f finder) Line(ctx context.Context, l jobstore.Line, limit int) ([]jobstore.Row, error) {
	return f.in.find(ctx, ofLine(l, limit, f.in.now))
}
