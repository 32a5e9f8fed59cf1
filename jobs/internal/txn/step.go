package txn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// Step is one try of a transaction. It ends with the function that receives it. One goroutine uses
// it.
type Step struct {
	Tx    jobstore.Tx
	Now   time.Time
	Asked time.Time // the time of this process just before Now was read
	Locks *Locks
	Rows  map[jobstore.ID]*jobstore.Row // jobs that begin, Jobs and Hold have locked; nil: no such job
	own   *jobstore.Row                 // the job that job() has locked
	batch *batch                        // the shared changes; nil: the transaction is not shared
}

// The limits of the wait for a lock of a name in one transaction: of the first try, and of all
// later ones. A transaction that waits keeps a connection, and others wait behind its locks.
const (
	soon   = 200 * time.Millisecond
	atOnce = 100 * time.Millisecond
)

// pauses is the wait between two tries while another transaction holds a lock.
var pauses = task.Backoff{Base: 20 * time.Millisecond, Max: time.Second}

// Do runs fn in a transaction of the store that holds all locks of l. When fn returns ErrLocks, it
// rolls back and runs fn again, in a new transaction, with the locks that were added to l. It
// blocks until the commit. fn may run more than once. Returns any other error of fn, and the error
// of the commit.
//
// While another transaction holds a lock of l, it tries again with pauses in which it has no
// transaction. With l.once it returns ErrHeld instead. Returns ErrUnavailable if ctx ends between
// two tries; the error is ErrHeld if the last try found a held lock.
func Do(ctx context.Context, store jobstore.Store, l *Locks, fn func(ctx context.Context, t *Step) error) error {
	for held := 0; ; {
		err := store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
			return In(ctx, tx, l, fn)
		})
		switch {
		case errors.Is(err, jobstore.ErrHeld) && !l.once:
			l.held = true
			wake.Sleep(ctx, pauses.Interval(held))
			held++
		case !errors.Is(err, ErrLocks):
			return err
		}
		if ctx.Err() != nil {
			if errors.Is(err, ErrLocks) {
				err = jobstore.ErrUnavailable
			}
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

// In locks the names and rows of l in the transaction tx and then runs fn once. It neither commits
// nor rolls back. Returns ErrLocks if locks are missing, any other error of fn, and errors of the
// store.
func In(ctx context.Context, tx jobstore.Tx, l *Locks, fn func(ctx context.Context, t *Step) error) error {
	t := &Step{Tx: tx, Locks: l}
	if err := t.begin(ctx); err != nil {
		return err
	}
	return fn(ctx, t)
}

// begin takes the locks of t.Locks in the order that the package comment states. It stores the
// locked rows in t.Rows, then sets Asked to the time of this process and Now to the time of the
// store. It blocks while other transactions hold a lock. Returns errors of the store, and ErrLocks
// from lockRows.
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
	if len(t.Locks.rows) > 0 {
		if err := t.lockRows(ctx, slices.Collect(maps.Keys(t.Locks.rows))); err != nil {
			return err
		}
	}
	t.Asked = time.Now()
	now, err := t.Tx.Now(ctx)
	t.Now = now
	return err
}

// lockNames sorts names and locks them until the transaction ends. It blocks while another
// transaction holds one of them. If the store can do that, it returns ErrHeld after a while. It
// does nothing without names. Returns errors of the store.
func (t *Step) lockNames(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	if l, ok := capability.As[jobstore.HastyLocker](t.Tx); ok {
		within := soon
		if t.Locks.hasty || t.Locks.held {
			within = atOnce
		}
		locked, err := l.LockSoon(ctx, within, names...)
		if err == nil && !locked {
			err = jobstore.ErrHeld
		}
		return err
	}
	return t.Tx.Lock(ctx, names...)
}

// named returns the lock names of a set of keys, in any order: each key with a prefix.
func named(prefix string, keys map[string]bool) []string {
	all := make([]string, 0, len(keys))
	for key := range keys {
		all = append(all, prefix+key)
	}
	return all
}

// job locks the job id, stores it in t.own and returns it. It blocks while another transaction
// holds the job. If t has locked it already, job returns the same row. Returns ErrNotFound if it
// does not exist. Returns ErrLocks, together with the row, if its sequence key or its parent is
// not locked yet; these locks are then added for the next try. Returns errors of the store.
//
// With t.Locks.hasty it does not wait: it returns ErrHeld for a job that another transaction holds.
func (t *Step) job(ctx context.Context, id jobstore.ID) (*jobstore.Row, error) {
	if p := t.Rows[id]; p != nil {
		return p, t.Locks.AddJob(p)
	}
	if t.Locks.hasty {
		found, err := t.FreeJobs(ctx, id)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, t.whyNotFree(ctx, id)
		}
		t.own = &found[0]
		return t.own, t.Locks.AddJob(t.own)
	}
	j, err := t.Tx.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	t.own = &j
	return &j, t.Locks.AddJob(&j)
}

// whyNotFree returns why FreeJobs has not found a job: ErrHeld if it exists, else ErrNotFound.
// Returns errors of the store.
func (t *Step) whyNotFree(ctx context.Context, id jobstore.ID) error {
	found, err := t.Tx.All(ctx, jobstore.Page{After: id - 1, Limit: 1}) // it locks nothing
	switch {
	case err != nil:
		return err
	case len(found) == 0 || found[0].ID != id:
		return jobstore.ErrNotFound
	}
	return jobstore.ErrHeld
}

// FreeJobs locks jobs and returns them, without those that do not exist or that another transaction
// has locked. If the store cannot tell, it waits for these. Returns errors of the store.
func (t *Step) FreeJobs(ctx context.Context, ids ...jobstore.ID) ([]jobstore.Row, error) {
	if l, ok := capability.As[jobstore.HastyLocker](t.Tx); ok {
		return l.FreeJobs(ctx, ids...)
	}
	return t.Tx.Jobs(ctx, ids...)
}

// Jobs locks jobs and returns those that exist, in a map by id. It returns the same row for a job
// that t has locked already. It blocks while other transactions hold a job.
//
// Rows must be locked in the order of ids. If a job with a higher id is already locked, Jobs adds
// all rows to t.Locks and returns ErrLocks. The transaction then starts again and locks all of them
// first. Returns errors of the store.
func (t *Step) Jobs(ctx context.Context, ids ...jobstore.ID) (map[jobstore.ID]*jobstore.Row, error) {
	jobs := make(map[jobstore.ID]*jobstore.Row, len(ids))
	var more []jobstore.ID
	for _, id := range ids {
		if t.own != nil && t.own.ID == id {
			jobs[id] = t.own
		} else if _, locked := t.Rows[id]; !locked {
			more = append(more, id)
		}
	}
	if err := t.lockRows(ctx, more); err != nil {
		return nil, err
	}
	for _, id := range ids {
		if j := t.Rows[id]; j != nil {
			jobs[id] = j
		}
	}
	return jobs, nil
}

// lockRows locks the jobs of ids, which are not locked yet, and stores them in t.Rows; nil for a
// job that does not exist. It does nothing without ids. If a job with a higher id is locked, it
// adds all rows to t.Locks and returns ErrLocks. Returns errors of the store. It blocks while
// other transactions hold a job.
func (t *Step) lockRows(ctx context.Context, ids []jobstore.ID) error {
	if len(ids) == 0 {
		return nil
	}
	locked := slices.Collect(maps.Keys(t.Rows))
	if t.own != nil {
		locked = append(locked, t.own.ID)
	}
	if len(locked) > 0 && slices.Min(ids) < slices.Max(locked) {
		for _, id := range append(locked, ids...) {
			t.Locks.AddRow(id)
		}
		return ErrLocks
	}
	found, err := t.Tx.Jobs(ctx, ids...)
	if err != nil {
		return err
	}
	if t.Rows == nil {
		t.Rows = make(map[jobstore.ID]*jobstore.Row, len(ids))
	}
	for _, id := range ids {
		t.Rows[id] = nil
	}
	for i := range found {
		t.Rows[found[i].ID] = &found[i]
	}
	return nil
}

// Hold notes in t.Rows jobs that Due or Line has locked; t.Rows points into jobs. While t holds
// them, Jobs returns ErrLocks for a job with a lower id than one of them.
func (t *Step) Hold(jobs []jobstore.Row) {
	if t.Rows == nil && len(jobs) > 0 {
		t.Rows = make(map[jobstore.ID]*jobstore.Row, len(jobs))
	}
	for i := range jobs {
		t.Rows[jobs[i].ID] = &jobs[i]
	}
}

// Save sets Changed of jobs to the time of the transaction, sets Due, and writes the jobs. Due
// becomes NextRun for a QUEUED or RUNQUEUED job, stays for a RUNNING one, and is zero otherwise.
//
//   - Outside a batch it writes the jobs at once. A new job has its ID when Save returns. Returns
//     errors of the store.
//   - In a batch it only notes the jobs and returns nil. They are written at the end of the
//     transaction, in the state that they have then, if the current change succeeds. A new job has
//     no ID until then.
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

// Drop deletes jobs, which must be locked. In a batch they are deleted at the end of the
// transaction, if the current change succeeds. Outside a batch they are deleted at once. Returns
// errors of the store.
func (t *Step) Drop(ctx context.Context, ids ...jobstore.ID) error {
	if t.batch != nil {
		t.batch.deleted = append(t.batch.deleted, ids...)
		return nil
	}
	return t.Tx.Delete(ctx, ids...)
}
