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

// Step is one run of a transaction.
type Step struct {
	Tx      jobstore.Tx
	Now     time.Time
	Asked   time.Time // this process's time just before Now was read
	Locks   *Locks
	Parents map[jobstore.ID]*jobstore.Row // the locked parents; nil: the job does not exist
	batch   *batch                        // the shared changes; nil: none
}

// Do runs fn in a transaction that holds all locks of l. It runs fn again, with more locks, if fn
// returns ErrLocks.
//
// Returns ErrUnavailable if ctx ends between two runs.
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

// begin takes the locks in their order, reads the parents, then the time.
func (t *Step) begin(ctx context.Context) error {
	if err := t.lockNames(ctx, named("sequence ", t.Locks.Sequences)); err != nil {
		return err
	}
	// Both are of one kind (jobstore.Tx.Lock), so one call locks them.
	unique := append(named("unique ", t.Locks.unique), named("unique key ", t.Locks.uniqueKeys)...)
	if err := t.lockNames(ctx, unique); err != nil {
		return err
	}
	if err := t.lockNames(ctx, named("answer ", t.Locks.keys)); err != nil {
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

func (t *Step) lockNames(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return t.Tx.Lock(ctx, names...)
}

// named returns the names of locks for keys.
func named(prefix string, keys map[string]bool) []string {
	all := make([]string, 0, len(keys))
	for key := range keys {
		all = append(all, prefix+key)
	}
	return all
}

// job returns the job id, locked. Returns ErrLocks if a lock is missing that a change of its state
// needs.
func (t *Step) job(ctx context.Context, id jobstore.ID) (*jobstore.Row, error) {
	if p := t.Parents[id]; p != nil { // it was locked as a parent of another job
		return p, t.Locks.AddJob(p)
	}
	j, err := t.Tx.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return &j, t.Locks.AddJob(&j)
}

// Save writes jobs. RUNNING jobs keep their lease.
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
