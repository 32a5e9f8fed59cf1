package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// Change is a change of one job that may share its transaction with others.
type Change struct {
	Id jobstore.ID
	// Name and key, where key is not "", say which job it is: the one that has them and is not over.
	Name, Key string
	// Answers: where there is no such job it is about the deferral that has them, of task.
	Answers bool
	task    task.ID
	// Needs, if not nil, notes which keys have to be locked, by the job as it was a moment ago.
	Needs func(j *jobstore.Row, l *Locks)
	// Do changes the job, nil if a key names none. It may be called more than once. With an error nothing is changed; ErrAlone says that
	// others are concerned, with whom no transaction is shared.
	Do func(ctx context.Context, t *Step, j *jobstore.Row) error
	// Then, if not nil, is called when the change is on disk, by any goroutine.
	Then func()

	err  error
	done chan struct{}
	left bool // nobody waits for it any more
}

// ErrAlone says that a change needs a transaction for itself.
var ErrAlone = errors.New("jobs: others are concerned")

// Engine brings together what changes jobs at the same time: what has come while transactions were under way goes together, each job once locked and once
// written. No goroutine runs when there is nothing to do.
type Engine struct {
	store jobstore.Store
	// after brings in order what a change of a job concerns.
	after func(ctx context.Context, t *Step, j *jobstore.Row) error

	mu      sync.Mutex
	line    []*Change
	workers int
	idle    chan struct{} // closed when no worker runs; nil: none has run
}

const (
	mostDeeds   = 256 // in a transaction
	mostSharing = 2   // transactions at a time

	batchTimeout = 30 * time.Second // for a store that does not answer
)

// New returns an engine over a store. after brings in order what a change of a job concerns.
func New(store jobstore.Store, after func(context.Context, *Step, *jobstore.Row) error) *Engine {
	return &Engine{store: store, after: after}
}

// Do runs fn in a transaction in which everything that l holds is locked. It runs fn again, with
// more locks, when fn returns ErrLocks.
func (g *Engine) Do(ctx context.Context, l *Locks, fn func(ctx context.Context, t *Step) error) error {
	return Do(ctx, g.store, l, fn)
}

// One runs fn over the job id in a transaction of its own, and After.
func (g *Engine) One(ctx context.Context, id jobstore.ID, fn func(ctx context.Context, t *Step, j *jobstore.Row) error) error {
	var l Locks
	return g.Do(ctx, &l, func(ctx context.Context, t *Step) error {
		j, err := t.job(ctx, id)
		if err != nil {
			return err
		}
		if err := fn(ctx, t, j); err != nil {
			return err
		}
		return g.after(ctx, t, j)
	})
}

// Batch does all changes, and returns the errors of those that have one, joined. A ctx that ends frees its caller only: what becomes of the changes is then open.
func (g *Engine) Batch(ctx context.Context, deeds ...*Change) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", jobstore.ErrUnavailable, context.Cause(ctx))
	}
	g.mu.Lock()
	for _, d := range deeds {
		d.done = make(chan struct{})
	}
	g.line = append(g.line, deeds...)
	if g.workers < mostSharing {
		if g.workers++; g.workers == 1 {
			g.idle = make(chan struct{})
		}
		go g.work()
	}
	g.mu.Unlock()
	var errs []error
	for _, d := range deeds {
		select {
		case <-d.done:
		case <-ctx.Done():
			g.forget(deeds)
			return fmt.Errorf("%w: %w", jobstore.ErrUnavailable, context.Cause(ctx))
		}
		err := d.err
		if errors.Is(err, ErrAlone) {
			err = g.alone(ctx, d)
		}
		errs = append(errs, err)
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// forget takes changes that nobody has begun with out of the line, which else would grow for as long as a store gives no answer.
func (g *Engine) forget(deeds []*Change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range deeds {
		d.left = true
	}
	g.line = slices.DeleteFunc(g.line, func(d *Change) bool { return d.left })
}

// work does what there is.
func (g *Engine) work() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.line) > 0 {
		n := min(len(g.line), mostDeeds)
		batch := slices.Clone(g.line[:n])
		if g.line = slices.Delete(g.line, 0, n); len(g.line) == 0 {
			g.line = nil
		}
		g.mu.Unlock()
		g.perform(batch)
		g.mu.Lock()
	}
	if g.workers--; g.workers == 0 {
		close(g.idle)
	}
}

// Wait waits until there is nothing to do.
func (g *Engine) Wait(ctx context.Context) error {
	g.mu.Lock()
	idle := g.idle
	g.mu.Unlock()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// perform does a batch. One that a store does not take, because of what is in it, is done one by one.
func (g *Engine) perform(batch []*Change) {
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	err := g.shared(ctx, batch)
	away := errors.Is(err, jobstore.ErrUnavailable) || errors.Is(err, jobstore.ErrClosed)
	for _, d := range batch {
		switch {
		case err == nil:
		case away || len(batch) == 1:
			d.err = err
		default:
			if one := g.shared(ctx, []*Change{d}); one != nil {
				d.err = one
			}
		}
		if d.err == nil && d.Then != nil {
			d.Then()
		}
		close(d.done)
	}
}

// shared does changes in one transaction. The error is one of the transaction; those of the changes are with them.
func (g *Engine) shared(ctx context.Context, deeds []*Change) error {
	var l Locks
	if err := g.scout(ctx, deeds, &l); err != nil {
		return err
	}
	return g.Do(ctx, &l, func(ctx context.Context, t *Step) error {
		ids := make([]jobstore.ID, 0, len(deeds))
		var tasks []task.ID
		for _, d := range deeds {
			if d.err = nil; d.Id != 0 {
				ids = append(ids, d.Id)
			}
			if d.task != "" {
				tasks = append(tasks, d.task)
			}
		}
		slices.Sort(ids)
		t.batch = newBatch(len(ids))
		if len(ids) > 0 {
			found, err := t.Tx.Jobs(ctx, slices.Compact(ids)...)
			if err != nil {
				return err
			}
			for i := range found {
				t.batch.jobs[found[i].ID] = &found[i]
			}
		}
		if err := t.batch.readDeferrals(ctx, t.Tx, tasks); err != nil {
			return err
		}
		var more error // what is missing for any of them is locked at once
		for _, d := range deeds {
			d.err = t.apply(ctx, d)
			if t.batch.missed != "" {
				d.task = t.batch.missed
			}
			t.batch.keep(d.err == nil)
			switch {
			case d.err == nil, isRule(d.err):
			case errors.Is(d.err, ErrLocks):
				more = ErrLocks
			default:
				return d.err
			}
		}
		if more != nil {
			return more
		}
		return t.batch.write(ctx, t.Tx)
	})
}

// isRule reports whether an error is an answer of the rules, and not one of the store.
func isRule(err error) bool {
	for _, class := range []error{jobstore.ErrNotFound, jobstore.ErrBadJob, jobstore.ErrState, jobstore.ErrStale, ErrAlone} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// scout reads what changes are about, and locks nothing: which jobs answers are for, and which keys have to be locked.
func (g *Engine) scout(ctx context.Context, deeds []*Change, l *Locks) error {
	var ids []jobstore.ID
	keyed := false
	for _, d := range deeds {
		switch {
		case d.Key != "":
			keyed = true
			_ = l.AddKey(d.Name, d.Key)
		case d.Needs != nil:
			ids = append(ids, d.Id)
		}
	}
	if !keyed && len(ids) == 0 {
		return nil
	}
	return g.store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		read := map[jobstore.ID]*jobstore.Row{}
		if len(ids) > 0 {
			found, err := tx.Jobs(ctx, ids...)
			if err != nil {
				return err
			}
			for i := range found {
				read[found[i].ID] = &found[i]
			}
		}
		for _, d := range deeds {
			if d.Key == "" {
				if j := read[d.Id]; j != nil && d.Needs != nil {
					d.Needs(j, l)
				}
				continue
			}
			found, err := tx.OfKey(ctx, d.Name, d.Key, jobstore.Page{States: alive(), Limit: 1})
			if err != nil {
				return err
			}
			if d.Id, d.task = 0, ""; len(found) > 0 {
				d.Id = found[0].ID
				continue
			}
			if !d.Answers {
				continue
			}
			if open, err := tx.DeferralOf(ctx, d.Name, d.Key); err != nil {
				return err
			} else if open != nil && open.Open() {
				d.task = open.Task
			}
		}
		return nil
	})
}

// apply does one change of a batch, in a copy of its job.
func (t *Step) apply(ctx context.Context, d *Change) error {
	var j *jobstore.Row
	if d.Key == "" {
		if j = t.batch.jobs[d.Id]; j == nil {
			return jobstore.ErrNotFound
		}
	} else {
		if j = t.batch.jobs[d.Id]; j == nil || j.Key != d.Key || j.Name != d.Name || j.State.Over() {
			j = t.batch.with(d.Name, d.Key)
		}
		if j == nil {
			missed, err := t.missed(ctx, d)
			if err != nil {
				return err
			}
			if missed != 0 { // rows are locked in their order: from the start
				d.Id = missed
				return ErrLocks
			}
			return d.Do(ctx, t, nil)
		}
	}
	c := *j
	return d.Do(ctx, t, &c)
}

// missed returns the job that the key of a change names, and that this batch has not read.
func (t *Step) missed(ctx context.Context, d *Change) (jobstore.ID, error) {
	found, err := t.Tx.OfKey(ctx, d.Name, d.Key, jobstore.Page{States: alive(), Limit: 2})
	if err != nil {
		return 0, err
	}
	for i := range found {
		if _, read := t.batch.jobs[found[i].ID]; !read {
			return found[i].ID, nil
		}
	}
	return 0, nil
}

// alone does a change in a transaction of its own, with all that it concerns.
func (g *Engine) alone(ctx context.Context, d *Change) error {
	var l Locks
	if d.Key != "" {
		_ = l.AddKey(d.Name, d.Key)
	}
	err := g.Do(ctx, &l, func(ctx context.Context, t *Step) error {
		id := d.Id
		if d.Key != "" {
			found, err := t.Tx.OfKey(ctx, d.Name, d.Key, jobstore.Page{States: alive(), Limit: 1})
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return d.Do(ctx, t, nil)
			}
			id = found[0].ID
		}
		j, err := t.job(ctx, id)
		if err != nil {
			return err
		}
		if err := d.Do(ctx, t, j); err != nil {
			return err
		}
		return g.after(ctx, t, j)
	})
	if err == nil && d.Then != nil {
		d.Then()
	}
	return err
}

// OneOrBatch is One, or Batch for a change that shares its transaction.
func (g *Engine) OneOrBatch(ctx context.Context, shares bool, id jobstore.ID, fn func(ctx context.Context, t *Step, j *jobstore.Row) error) error {
	if !shares {
		return g.One(ctx, id, fn)
	}
	return g.Batch(ctx, &Change{Id: id, Do: fn})
}
