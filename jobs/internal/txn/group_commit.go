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
	// the task of the open deferral with the key, if no open job has the key; findJobs sets it
	task task.ID
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

	// The result of the change, valid once done is closed.
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
	heldTime     = 5 * time.Second  // for locks of others; a CreateAll of 20,000 keys takes as long
)

// New returns an engine over a store. It starts no goroutine. After each change that has a
// transaction of its own (One, runAlone), the engine calls after with the job in that transaction.
// Shared changes do not call it, since no other job depends on their jobs.
func New(store jobstore.Store, after func(context.Context, *Step, *jobstore.Row) error) *Engine {
	return &Engine{store: store, after: after}
}

// Do runs fn in a transaction of the store that holds all locks of l. When fn returns ErrLocks, it
// runs fn again in a new transaction, with the locks that fn has added to l. It blocks until the
// commit. Returns any other error of fn unchanged, the errors of the store, and ErrUnavailable if
// ctx ends between two tries.
func (e *Engine) Do(ctx context.Context, l *Locks, fn func(ctx context.Context, t *Step) error) error {
	return Do(ctx, e.store, l, fn)
}

// One locks the job id and calls fn and then e.after with it, in a transaction of its own. It also
// locks the sequence key and the parent of the job. It runs them again when a lock was missing. It
// blocks until the commit. fn saves the job itself.
//
// Returns ErrNotFound if the job does not exist. Returns the error of fn or e.after, which rolls
// everything back, and the errors of Do.
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

// Batch makes all changes in shared transactions and blocks until they are committed or refused.
// Worker goroutines of the engine make the changes and call Then of each change that succeeded. A
// change that returns ErrNeedsOwnTx gets a transaction of its own afterwards, in this goroutine
// (runAlone). A refused change does not stop the others. Returns the errors of the changes, joined;
// the error of a single change unchanged.
//
// While another transaction holds the locks of a single change, the change waits until ctx ends. In
// a call with several changes, such changes wait until the others are done, then for heldTime in
// all, and then get ErrHeld. Changes with the same Key are made in their order.
//
// Returns ErrUnavailable if ctx ends first. Changes that have begun may then still take effect; the
// others are dropped. It takes e.mu, but does not hold it while it waits.
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
	var held []int
	for i, c := range changes {
		select {
		case <-c.done:
		case <-ctx.Done():
			e.forget(changes)
			return fmt.Errorf("%w: %w", jobstore.ErrUnavailable, context.Cause(ctx))
		}
		err := c.err
		if errors.Is(err, ErrNeedsOwnTx) {
			if !slices.ContainsFunc(held, func(k int) bool { return c.Key != "" && changes[k].group() == c.group() }) {
				err = e.runAlone(ctx, c, len(changes) > 1)
			}
			if len(changes) > 1 && (errors.Is(err, ErrNeedsOwnTx) || errors.Is(err, jobstore.ErrHeld)) {
				held = append(held, i)
			}
		}
		errs = append(errs, err)
	}
	if len(held) > 0 {
		short, cancel := context.WithTimeout(ctx, heldTime)
		defer cancel()
		for _, i := range held {
			err := e.runAlone(short, changes[i], false)
			if short.Err() != nil && errors.Is(err, jobstore.ErrUnavailable) {
				err = fmt.Errorf("%w: %w", jobstore.ErrHeld, err) // it ended during a try
			}
			errs[i] = err
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// forget marks changes as abandoned and removes those from the queue that no worker has begun.
// Without it the queue would grow while the store does not reply. Changes that have begun continue.
// It takes e.mu.
func (e *Engine) forget(changes []*Change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range changes {
		c.abandoned = true
	}
	e.queue = slices.DeleteFunc(e.queue, func(c *Change) bool { return c.abandoned })
}

// work makes the queued changes, in batches of at most maxBatch, until the queue is empty. It runs
// in a goroutine that Batch has counted in e.workers. The last worker closes e.idle. It takes e.mu
// and releases it during each batch.
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

// Wait blocks until no worker runs. It does not stop new changes. Returns nil at once if no worker
// has ever run, and the cause of ctx if ctx ends first. It takes e.mu, but does not hold it while
// it waits.
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

// runBatch makes a batch of changes in one transaction. It stores the error of each change in err,
// calls Then of those that succeeded, and wakes their callers by closing done.
//
// If the transaction fails, each change gets a transaction of its own, so that a bad change does
// not fail the others. If the store is unavailable or closed, all changes get this error instead.
// All transactions together may take batchTimeout. Call it without e.mu held.
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

// runShared makes changes in one transaction, in order, each on the jobs as the earlier ones have
// left them. It writes each job once, at the end.
//
// Each change holds its own error in err. An error of a rule (isRule) drops only its change. Any
// other error rolls the whole transaction back and is returned. When locks are missing, it rolls
// back, notes the missing locks of all changes (and deferrals to lock in task), and runs all
// changes again. Returns ErrUnavailable if ctx ends between two tries. It blocks.
//
// It does not wait long for a key that another transaction holds, which may be a transaction of a
// caller (CreateTx). All changes with keys then get ErrNeedsOwnTx, and the other changes run again.
// A change whose job or deferral another transaction has locked also gets ErrNeedsOwnTx.
func (e *Engine) runShared(ctx context.Context, changes []*Change) error {
	err := e.tryShared(ctx, changes)
	if !errors.Is(err, jobstore.ErrHeld) {
		return err
	}
	var rest []*Change
	for _, c := range changes {
		if c.err = ErrNeedsOwnTx; c.Key == "" && c.Needs == nil {
			rest = append(rest, c)
		}
	}
	if len(rest) == 0 || len(rest) == len(changes) {
		return nil
	}
	if err = e.tryShared(ctx, rest); errors.Is(err, jobstore.ErrHeld) {
		for _, c := range rest {
			c.err = ErrNeedsOwnTx
		}
		return nil
	}
	return err
}

// tryShared makes the changes in one transaction, as runShared says. If another transaction holds a
// key for long, it returns ErrHeld and has changed nothing; runShared then decides.
func (e *Engine) tryShared(ctx context.Context, changes []*Change) error {
	l := Locks{hasty: true, once: true}
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
			t.batch.asked = slices.Compact(ids)
			found, err := t.FreeJobs(ctx, t.batch.asked...)
			if err != nil {
				return err
			}
			for i := range found {
				t.batch.jobs[found[i].ID] = &found[i]
			}
		}
		if err := t.batch.readDeferrals(ctx, t, tasks); err != nil {
			return err
		}
		var more error // All missing locks are noted before the transaction starts again.
		for _, c := range changes {
			c.err = t.apply(ctx, c)
			if t.batch.missed != "" && c.task == t.batch.missed {
				c.err = ErrNeedsOwnTx // another transaction has locked it
			} else if t.batch.missed != "" {
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

// isRule reports whether err comes from the rules of jobs: it wraps ErrNotFound, ErrBadJob,
// ErrState, ErrStale or ErrNeedsOwnTx. Such an error fails one change. Other errors come from the
// store and fail the whole transaction.
func isRule(err error) bool {
	for _, class := range []error{jobstore.ErrNotFound, jobstore.ErrBadJob, jobstore.ErrState, jobstore.ErrStale, ErrNeedsOwnTx} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// findJobs reads the jobs and deferrals that the changes select, in a View without locks. It does
// no I/O if no change has a Key or Needs.
//
// For a change with a Key it adds the key to the keys to lock in l. It sets ID to the open job
// with the key, or 0. If no job has it and Answers is set, it sets task to the open deferral, or
// "". For other changes it calls Needs, if set, with the job if the job exists. Returns errors of
// the store.
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

// apply calls Do of one change with a copy of its job, in the state that earlier changes of the
// batch have left. Do gets nil if no open job has the key. It returns the error of Do.
//
// Returns ErrNotFound if an earlier change has deleted a job selected by ID. Returns ErrNeedsOwnTx
// if the job does not exist, or if another transaction has locked it, so that the other changes do
// not wait for it. Returns ErrLocks, for another try, if a job that is not locked has got the key
// since findJobs read it; it then sets c.ID to that job.
func (t *Step) apply(ctx context.Context, c *Change) error {
	var j *jobstore.Row
	if c.Key == "" {
		if j = t.batch.jobs[c.ID]; j == nil {
			if t.batch.read(c.ID) {
				return jobstore.ErrNotFound
			}
			return ErrNeedsOwnTx
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
			if slices.Contains(t.batch.asked, missed) {
				return ErrNeedsOwnTx // another transaction has locked it
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

// jobNotRead returns the id of the stored open job that has the key of a change, if this batch has
// not read that job. Otherwise it returns 0: no job has the key, or only a job of the batch.
// Returns errors of the store.
func (t *Step) jobNotRead(ctx context.Context, c *Change) (jobstore.ID, error) {
	found, err := t.Tx.First(ctx, jobstore.OpenStates(), c.group())
	if id := found[c.group()]; err == nil && !t.batch.read(id) {
		return id, nil
	}
	return 0, err
}
