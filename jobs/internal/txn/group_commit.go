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

// Change is a change of one job that may share its transaction with other changes. Use it for one
// call of Batch only.
type Change struct {
	ID jobstore.ID
	// Name and Key, if Key is not "", select the open job that has both. The engine then sets ID.
	Name, Key string
	// Answers makes the change apply to the open deferral with the key if no open job has it.
	Answers bool
	task    task.ID
	// Needs, if not nil, adds the keys to lock to l. j is the job as it was before the transaction.
	Needs func(j *jobstore.Row, l *Locks)
	// Do changes the job. j is a copy of it, or nil if no open job has the key. Do may be called more
	// than once.
	//
	// After an error nothing is changed. ErrNeedsOwnTx asks for a transaction without other changes,
	// because other jobs depend on this one.
	Do func(ctx context.Context, t *Step, j *jobstore.Row) error
	// Then, if not nil, is called after the commit, from any goroutine.
	Then func()

	err       error
	done      chan struct{}
	abandoned bool // its caller no longer waits for it
}

// ErrNeedsOwnTx reports that a change needs a transaction of its own.
var ErrNeedsOwnTx = errors.New("jobs: the change needs a transaction of its own")

// Engine runs transactions and implements the group commit of changes. Changes that arrive while
// transactions run share the next one, which locks and writes each job once. No goroutine runs
// without changes. Safe for concurrent use.
type Engine struct {
	store jobstore.Store
	// after updates other jobs that depend on j: its sequence and its parent.
	after func(ctx context.Context, t *Step, j *jobstore.Row) error

	mu      sync.Mutex
	queue   []*Change
	workers int
	idle    chan struct{} // closed when no worker runs; nil: no worker has run yet
}

const (
	maxBatch   = 256 // changes in a transaction
	maxWorkers = 2   // transactions at a time

	batchTimeout = 30 * time.Second // for a store that does not reply
)

// New returns an engine over a store. After each change that has a transaction of its own, the
// engine calls after for the job, in the same transaction.
func New(store jobstore.Store, after func(context.Context, *Step, *jobstore.Row) error) *Engine {
	return &Engine{store: store, after: after}
}

// Do runs fn in a transaction that holds all locks of l. It runs fn again, with more locks, when fn
// returns ErrLocks. It blocks until the commit.
func (e *Engine) Do(ctx context.Context, l *Locks, fn func(ctx context.Context, t *Step) error) error {
	return Do(ctx, e.store, l, fn)
}

// One locks the job id and calls fn and then e.after with it, in a transaction of its own. It runs
// them again when a lock was missing. Returns ErrNotFound if the job does not exist.
func (e *Engine) One(ctx context.Context, id jobstore.ID, fn func(ctx context.Context, t *Step, j *jobstore.Row) error) error {
	var l Locks
	return e.Do(ctx, &l, func(ctx context.Context, t *Step) error {
		j, err := t.job(ctx, id)
		if err != nil {
			return err
		}
		if err := fn(ctx, t, j); err != nil {
			return err
		}
		return e.after(ctx, t, j)
	})
}

// Batch makes all changes in shared transactions and waits for them. A change that returns
// ErrNeedsOwnTx gets its own transaction. Returns the errors of the changes, joined.
//
// Returns ErrUnavailable if ctx ends first. Changes that have begun may then still take effect.
func (e *Engine) Batch(ctx context.Context, changes ...*Change) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", jobstore.ErrUnavailable, context.Cause(ctx))
	}
	e.mu.Lock()
	for _, c := range changes {
		c.done = make(chan struct{})
	}
	e.queue = append(e.queue, changes...)
	if e.workers < maxWorkers {
		if e.workers++; e.workers == 1 {
			e.idle = make(chan struct{})
		}
		go e.work()
	}
	e.mu.Unlock()
	var errs []error
	for _, c := range changes {
		select {
		case <-c.done:
		case <-ctx.Done():
			e.forget(changes)
			return fmt.Errorf("%w: %w", jobstore.ErrUnavailable, context.Cause(ctx))
		}
		err := c.err
		if errors.Is(err, ErrNeedsOwnTx) {
			err = e.runAlone(ctx, c)
		}
		errs = append(errs, err)
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// forget marks changes as abandoned and removes those from the queue that no worker has begun.
// Otherwise the queue would grow while the store does not reply. It takes e.mu.
func (e *Engine) forget(changes []*Change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range changes {
		c.abandoned = true
	}
	e.queue = slices.DeleteFunc(e.queue, func(c *Change) bool { return c.abandoned })
}

// work makes the queued changes, batch by batch, until the queue is empty. It takes e.mu and
// releases it during each batch.
func (e *Engine) work() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.queue) > 0 {
		n := min(len(e.queue), maxBatch)
		batch := slices.Clone(e.queue[:n])
		if e.queue = slices.Delete(e.queue, 0, n); len(e.queue) == 0 {
			e.queue = nil
		}
		e.mu.Unlock()
		e.runBatch(batch)
		e.mu.Lock()
	}
	if e.workers--; e.workers == 0 {
		close(e.idle)
	}
}

// Wait waits until no worker runs. Returns the cause of ctx if ctx ends first.
func (e *Engine) Wait(ctx context.Context) error {
	e.mu.Lock()
	idle := e.idle
	e.mu.Unlock()
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

// runBatch makes a batch of changes in one transaction, calls Then of those that succeeded, and
// wakes their callers. If the transaction fails because of a change, each change gets a transaction
// of its own.
func (e *Engine) runBatch(batch []*Change) {
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	err := e.runShared(ctx, batch)
	unavailable := errors.Is(err, jobstore.ErrUnavailable) || errors.Is(err, jobstore.ErrClosed)
	for _, c := range batch {
		switch {
		case err == nil:
		case unavailable || len(batch) == 1:
			c.err = err
		default:
			if one := e.runShared(ctx, []*Change{c}); one != nil {
				c.err = one
			}
		}
		if c.err == nil && c.Then != nil {
			c.Then()
		}
		close(c.done)
	}
}

// runShared makes changes in one transaction. It returns the error of the transaction. Each change
// holds its own error in err.
func (e *Engine) runShared(ctx context.Context, changes []*Change) error {
	var l Locks
	if err := e.findJobs(ctx, changes, &l); err != nil {
		return err
	}
	return e.Do(ctx, &l, func(ctx context.Context, t *Step) error {
		ids := make([]jobstore.ID, 0, len(changes))
		var tasks []task.ID
		for _, c := range changes {
			if c.err = nil; c.ID != 0 {
				ids = append(ids, c.ID)
			}
			if c.task != "" {
				tasks = append(tasks, c.task)
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
		var more error // All missing locks are noted before the transaction starts again.
		for _, c := range changes {
			c.err = t.apply(ctx, c)
			if t.batch.missed != "" {
				c.task = t.batch.missed
			}
			t.batch.endChange(c.err == nil)
			switch {
			case c.err == nil, isRule(c.err):
			case errors.Is(c.err, ErrLocks):
				more = ErrLocks
			default:
				return c.err
			}
		}
		if more != nil {
			return more
		}
		return t.batch.write(ctx, t.Tx)
	})
}

// isRule reports whether err comes from the rules of jobs. Other errors come from the store and
// fail the whole transaction.
func isRule(err error) bool {
	for _, class := range []error{jobstore.ErrNotFound, jobstore.ErrBadJob, jobstore.ErrState, jobstore.ErrStale, ErrNeedsOwnTx} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// findJobs reads the jobs and deferrals that the changes select, without locks. It sets ID or task
// of each change with a Key, and adds the keys to lock to l.
func (e *Engine) findJobs(ctx context.Context, changes []*Change, l *Locks) error {
	var ids []jobstore.ID
	keyed := false
	for _, c := range changes {
		switch {
		case c.Key != "":
			keyed = true
			_ = l.AddKey(c.Name, c.Key)
		case c.Needs != nil:
			ids = append(ids, c.ID)
		}
	}
	if !keyed && len(ids) == 0 {
		return nil
	}
	return e.store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
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
		var keys []jobstore.Group
		for _, c := range changes {
			if c.Key != "" {
				keys = append(keys, c.group())
			} else if j := read[c.ID]; j != nil && c.Needs != nil {
				c.Needs(j, l)
			}
		}
		if len(keys) == 0 {
			return nil
		}
		found, err := tx.First(ctx, jobstore.OpenStates(), keys...)
		if err != nil {
			return err
		}
		keys = keys[:0]
		for _, c := range changes {
			if c.Key == "" {
				continue
			}
			if c.ID, c.task = found[c.group()], ""; c.ID == 0 && c.Answers {
				keys = append(keys, c.group())
			}
		}
		if len(keys) == 0 {
			return nil
		}
		open, err := tx.OpenDeferrals(ctx, keys...)
		if err != nil {
			return err
		}
		for _, c := range changes {
			if c.Key != "" && c.ID == 0 && c.Answers {
				c.task = open[c.group()]
			}
		}
		return nil
	})
}

// group returns the name and the key of a change as a group.
func (c *Change) group() jobstore.Group {
	return jobstore.Group{By: jobstore.ByKey, Name: c.Name, Key: c.Key}
}

// apply calls Do of one change with a copy of its job, or with nil if no open job has the key.
// Returns ErrNotFound if a job selected by ID does not exist. Returns ErrLocks if another job has
// the key since findJobs read it.
func (t *Step) apply(ctx context.Context, c *Change) error {
	var j *jobstore.Row
	if c.Key == "" {
		if j = t.batch.jobs[c.ID]; j == nil {
			return jobstore.ErrNotFound
		}
	} else {
		if j = t.batch.jobs[c.ID]; j == nil || j.Key != c.Key || j.Name != c.Name || j.State.Over() {
			j = t.batch.openJob(c.Name, c.Key)
		}
		if j == nil {
			missed, err := t.jobNotRead(ctx, c)
			if err != nil {
				return err
			}
			if missed != 0 { // rows are locked in order: start the transaction again
				c.ID = missed
				return ErrLocks
			}
			return c.Do(ctx, t, nil)
		}
	}
	own := *j
	return c.Do(ctx, t, &own)
}

// jobNotRead returns the id of the open job that has the key of a change, if this batch has not
// read that job. Otherwise it returns 0.
func (t *Step) jobNotRead(ctx context.Context, c *Change) (jobstore.ID, error) {
	found, err := t.Tx.First(ctx, jobstore.OpenStates(), c.group())
	if id := found[c.group()]; err == nil && !t.batch.read(id) {
		return id, nil
	}
	return 0, err
}

// runAlone makes one change in a transaction of its own, updates the other jobs that depend on its
// job, and then calls Then.
func (e *Engine) runAlone(ctx context.Context, c *Change) error {
	var l Locks
	if c.Key != "" {
		_ = l.AddKey(c.Name, c.Key)
	}
	err := e.Do(ctx, &l, func(ctx context.Context, t *Step) error {
		id := c.ID
		if c.Key != "" {
			found, err := t.Tx.First(ctx, jobstore.OpenStates(), c.group())
			if err != nil {
				return err
			}
			if id = found[c.group()]; id == 0 {
				return c.Do(ctx, t, nil)
			}
		}
		j, err := t.job(ctx, id)
		if c.Key != "" && (errors.Is(err, jobstore.ErrNotFound) || err == nil && (j.State.Over() || j.Key != c.Key || j.Name != c.Name)) {
			return ErrLocks // the job no longer has the key
		}
		if err != nil {
			return err
		}
		if err := c.Do(ctx, t, j); err != nil {
			return err
		}
		return e.after(ctx, t, j)
	})
	if err == nil && c.Then != nil {
		c.Then()
	}
	return err
}

// OneOrBatch is One, or Batch if shares is true.
func (e *Engine) OneOrBatch(ctx context.Context, shares bool, id jobstore.ID, fn func(ctx context.Context, t *Step, j *jobstore.Row) error) error {
	if !shares {
		return e.One(ctx, id, fn)
	}
	return e.Batch(ctx, &Change{ID: id, Do: fn})
}
