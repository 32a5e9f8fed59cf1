package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// step is one transaction.
type step struct {
	tx      Tx
	now     time.Time
	asked   time.Time // by the clock of this process, just before now was read
	locks   *locks
	parents map[ID]*Row // those that were locked first; nil: there is none
	batch   *batch      // what shares this transaction; nil: nobody
}

// update runs fn in a transaction in which everything that locks holds is locked. It runs fn again,
// with more locks, when fn returns errLocks.
func update(ctx context.Context, store Store, l *locks, fn func(ctx context.Context, t *step) error) error {
	for {
		err := store.Update(ctx, func(ctx context.Context, tx Tx) error {
			t := &step{tx: tx, locks: l}
			if err := t.begin(ctx); err != nil {
				return err
			}
			return fn(ctx, t)
		})
		if !errors.Is(err, errLocks) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
		}
	}
}

func (t *step) begin(ctx context.Context) error {
	if err := t.lockNames(ctx, "sequence ", t.locks.sequences); err != nil {
		return err
	}
	if err := t.lockNames(ctx, "unique ", t.locks.unique); err != nil {
		return err
	}
	if err := t.lockNames(ctx, "unique key ", t.locks.uniqueKeys); err != nil {
		return err
	}
	if err := t.lockNames(ctx, "answer ", t.locks.keys); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(t.locks.parents)) {
		j, err := t.tx.Get(ctx, id)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return err
		}
		if t.parents == nil {
			t.parents = map[ID]*Row{}
		}
		if err != nil {
			t.parents[id] = nil
			continue
		}
		t.parents[id] = &j
	}
	t.asked = time.Now()
	now, err := t.tx.Now(ctx)
	t.now = now
	return err
}

func (t *step) lockNames(ctx context.Context, prefix string, names map[string]bool) error {
	if len(names) == 0 {
		return nil
	}
	all := make([]string, 0, len(names))
	for name := range names {
		all = append(all, prefix+name)
	}
	slices.Sort(all)
	return t.tx.Lock(ctx, all...)
}

// job returns the job id, locked after all that a change of its state concerns.
func (t *step) job(ctx context.Context, id ID) (*Row, error) {
	if p := t.parents[id]; p != nil { // a parent of another job of this step
		return p, t.locks.addJob(p)
	}
	j, err := t.tx.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return &j, t.locks.addJob(&j)
}

// save writes jobs. Those that are RUNNING keep their lease.
func (t *step) save(ctx context.Context, jobs ...*Row) error {
	for _, j := range jobs {
		j.Changed = t.now
		j.settle(j.Due)
	}
	if t.batch != nil {
		t.batch.save(jobs)
		return nil
	}
	return t.tx.Save(ctx, jobs...)
}

// drop deletes jobs.
func (t *step) drop(ctx context.Context, ids ...ID) error {
	if t.batch != nil {
		t.batch.gone = append(t.batch.gone, ids...)
		return nil
	}
	return t.tx.Delete(ctx, ids...)
}
