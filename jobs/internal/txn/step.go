package txn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Step is one transaction.
type Step struct {
	Tx      jobstore.Tx
	Now     time.Time
	Asked   time.Time // by the clock of this process, just before now was read
	Locks   *Locks
	Parents map[jobstore.ID]*jobstore.Row // those that were locked first; nil: there is none
	batch   *batch                        // what shares this transaction; nil: nobody
}

// Do runs fn in a transaction in which everything that locks holds is locked. It runs fn again,
// with more locks, when fn returns ErrLocks.
func Do(ctx context.Context, store jobstore.Store, l *Locks, fn func(ctx context.Context, t *Step) error) error {
	for {
		err := store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
			t := &Step{Tx: tx, Locks: l}
			if err := t.begin(ctx); err != nil {
				return err
			}
			return fn(ctx, t)
		})
		if !errors.Is(err, ErrLocks) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", jobstore.ErrUnavailable, context.Cause(ctx))
		}
	}
}

func (t *Step) begin(ctx context.Context) error {
	if err := t.lockNames(ctx, "sequence ", t.Locks.Sequences); err != nil {
		return err
	}
	if err := t.lockNames(ctx, "unique ", t.Locks.unique); err != nil {
		return err
	}
	if err := t.lockNames(ctx, "unique key ", t.Locks.uniqueKeys); err != nil {
		return err
	}
	if err := t.lockNames(ctx, "answer ", t.Locks.keys); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(t.Locks.parents)) {
		j, err := t.Tx.Get(ctx, id)
		switch {
		case errors.Is(err, jobstore.ErrNotFound):
		case err != nil:
			return err
		}
		if t.Parents == nil {
			t.Parents = map[jobstore.ID]*jobstore.Row{}
		}
		if err != nil {
			t.Parents[id] = nil
			continue
		}
		t.Parents[id] = &j
	}
	t.Asked = time.Now()
	now, err := t.Tx.Now(ctx)
	t.Now = now
	return err
}

func (t *Step) lockNames(ctx context.Context, prefix string, names map[string]bool) error {
	if len(names) == 0 {
		return nil
	}
	all := make([]string, 0, len(names))
	for name := range names {
		all = append(all, prefix+name)
	}
	slices.Sort(all)
	return t.Tx.Lock(ctx, all...)
}

// job returns the job id, locked after all that a change of its state concerns.
func (t *Step) job(ctx context.Context, id jobstore.ID) (*jobstore.Row, error) {
	if p := t.Parents[id]; p != nil { // a parent of another job of this step
		return p, t.Locks.AddJob(p)
	}
	j, err := t.Tx.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return &j, t.Locks.AddJob(&j)
}

// Save writes jobs. Those that are RUNNING keep their lease.
func (t *Step) Save(ctx context.Context, jobs ...*jobstore.Row) error {
	for _, j := range jobs {
		j.Changed = t.Now
		rules.SetDue(j, j.Due)
	}
	if t.batch != nil {
		t.batch.save(jobs)
		return nil
	}
	return t.Tx.Save(ctx, jobs...)
}

// Drop deletes jobs.
func (t *Step) Drop(ctx context.Context, ids ...jobstore.ID) error {
	if t.batch != nil {
		t.batch.gone = append(t.batch.gone, ids...)
		return nil
	}
	return t.Tx.Delete(ctx, ids...)
}
