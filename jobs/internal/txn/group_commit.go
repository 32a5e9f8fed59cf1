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

// Change is a change of one job that may share its transaction with other changes.
type Change struct {
	Id jobstore.ID
	// Name and Key, if Key is not "", identify the job: the one that has them and is not over. The
	// engine then sets Id.
	Name, Key string
	// Answers: if there is no such job, the change is about the open deferral that has the key.
	Answers bool
	task    task.ID
	// Needs, if not nil, notes the keys to lock. j is the job as it was before the transaction.
	Needs func(j *jobstore.Row, l *Locks)
	// Do changes the job, which is nil if no job has the key. It may be called more than once.
	//
	// After an error nothing is changed. ErrAlone asks for a transaction that no other change
	// shares, since other jobs are concerned.
	Do func(ctx context.Context, t *Step, j *jobstore.Row) error
	// Then, if not nil, is called after the commit, by any goroutine.
	Then func()

	err  error
	done chan struct{}
	left bool // its caller has stopped waiting
}

// ErrAlone says that a change needs a transaction of its own.
var ErrAlone = errors.New("jobs: others are concerned")

// Engine runs transactions, and is the group commit of changes. Changes that arrive while
// transactions run share the next one, in which each job is locked once and written once. No
// goroutine runs while there is no change. Safe for concurrent use.
type Engine struct {
	store jobstore.Store
	// after updates other jobs that a change of j concerns: those of its sequence, and its parent.
	after func(ctx context.Context, t *Step, j *jobstore.Row) error

	mu      sync.Mutex
	line    []*Change
	workers int
	idle    chan struct{} // closed when no worker runs; nil: none has run yet
}

const (
	mostDeeds   = 256 // changes in a transaction
	mostSharing = 2   // transactions at a time

	batchTimeout = 30 * time.Second // for a store that does not answer
)

// New returns an engine over a store. after updates other jobs that the change of a job concerns.
func New(store jobstore.Store, after func(context.Context, *Step, *jobstore.Row) error) *Engine {
	return &Engine{store: store, after: after}
}

// Do runs fn in a transaction that holds all locks of l. It runs fn again, with more locks, if fn
// returns ErrLocks.
func (g *Engine) Do(ctx context.Context, l *Locks, fn func(ctx context.Context, t *Step) error) error {
	return Do(ctx, g.store, l, fn)
}

// One runs fn over the job id, then after, in a transaction of its own.
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

// Batch makes all changes in shared transactions, and returns their errors, joined.
//
// Returns ErrUnavailable if ctx ends first. The outcome of the changes is then unknown to the
// caller.
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

// forget removes changes from the line that no worker has begun. Without it the line would grow
// while a store does not answer.
func (g *Engine) forget(deeds []*Change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range deeds {
		d.left = true
	}
	g.line = slices.DeleteFunc(g.line, func(d *Change) bool { return d.left })
}

// work makes the changes of the line, until it is empty.
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

// Wait waits until no change is under way. Returns the cause of ctx if ctx ends first.
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

// perform makes a batch of changes. If a change makes the transaction fail, each change gets a
// transaction of its own.
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

// shared makes changes in one transaction. Its error is that of the transaction; each change holds
// its own error.
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
		var more error // all missing locks are noted before the next try
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

// isRule reports whether an error comes from the rules, not from the store.
func isRule(err error) bool {
	for _, class := range []error{jobstore.ErrNotFound, jobstore.ErrBadJob, jobstore.ErrState, jobstore.ErrStale, ErrAlone} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// scout reads the jobs and deferrals that changes are about, without locks, and notes the keys to
// lock.
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
			found, err := tx.OfKey(ctx, d.Name, d.Key, jobstore.Page{States: jobstore.OpenStates(), Limit: 1})
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

// apply makes one change of a batch, on a copy of its job.
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
			if missed != 0 { // rows are locked in order, so start again
				d.Id = missed
				return ErrLocks
			}
			return d.Do(ctx, t, nil)
		}
	}
	c := *j
	return d.Do(ctx, t, &c)
}

// missed returns the job that has the key of a change and that this batch has not read; 0: none.
func (t *Step) missed(ctx context.Context, d *Change) (jobstore.ID, error) {
	found, err := t.Tx.OfKey(ctx, d.Name, d.Key, jobstore.Page{States: jobstore.OpenStates(), Limit: 2})
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

// alone makes one change in a transaction of its own, then updates the other jobs that it concerns.
func (g *Engine) alone(ctx context.Context, d *Change) error {
	var l Locks
	if d.Key != "" {
		_ = l.AddKey(d.Name, d.Key)
	}
	err := g.Do(ctx, &l, func(ctx context.Context, t *Step) error {
		id := d.Id
		if d.Key != "" {
			found, err := t.Tx.OfKey(ctx, d.Name, d.Key, jobstore.Page{States: jobstore.OpenStates(), Limit: 1})
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return d.Do(ctx, t, nil)
			}
			id = found[0].ID
		}
		j, err := t.job(ctx, id)
		if d.Key != "" && (errors.Is(err, jobstore.ErrNotFound) || err == nil && (j.State.Over() || j.Key != d.Key || j.Name != d.Name)) {
			return ErrLocks // it is not the job of the key since it was found
		}
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

// OneOrBatch is One, or Batch if shares is set.
func (g *Engine) OneOrBatch(ctx context.Context, shares bool, id jobstore.ID, fn func(ctx context.Context, t *Step, j *jobstore.Row) error) error {
	if !shares {
		return g.One(ctx, id, fn)
	}
	return g.Batch(ctx, &Change{Id: id, Do: fn})
}
