package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// settle sets Due from the state. lease is until when a RUNNING job is leased, zero for one that is not.
func (j *Row) settle(lease time.Time) {
	switch j.State {
	case Queued, RunQueued:
		j.Due = j.NextRun
	case Running:
		j.Due = lease
	default:
		j.Due = time.Time{}
	}
}

// errLocks says that a transaction has to begin anew, with more locked from the start.
var errLocks = errors.New("jobs: locks are missing")

// locks is what a transaction has to lock before it touches the jobs it is about, always in this order: sequences, unique names, unique keys, keys of answers,
// parents. It is known only when the jobs have been read, and then what is missing is added and the transaction begins anew: sequence keys and parents of a
// job never change, and a key is looked at again.
type locks struct {
	sequences  map[string]bool
	unique     map[string]bool
	uniqueKeys map[string]bool // by keyLock
	keys       map[string]bool // likewise
	parents    map[ID]bool
}

func (l *locks) addSequence(key string) {
	if l.sequences == nil {
		l.sequences = map[string]bool{}
	}
	l.sequences[key] = true
}

func (l *locks) addUnique(name string) {
	if l.unique == nil {
		l.unique = map[string]bool{}
	}
	l.unique[name] = true
}

func (l *locks) addParent(id ID) {
	if l.parents == nil {
		l.parents = map[ID]bool{}
	}
	l.parents[id] = true
}

// addJob notes what has to be locked when the state of j changes, and returns errLocks if that was not locked.
func (l *locks) addJob(j *Row) error {
	err := l.addSequenceOf(j)
	if j.Parent != 0 && !l.parents[j.Parent] {
		l.addParent(j.Parent)
		err = errLocks
	}
	return err
}

func (l *locks) addSequenceOf(j *Row) error {
	if j.SequenceKey == "" || l.sequences[j.SequenceKey] {
		return nil
	}
	l.addSequence(j.SequenceKey)
	return errLocks
}

// step is one transaction of the service.
type step struct {
	s       *Service
	tx      Tx
	now     time.Time
	asked   time.Time // by the clock of this process, just before now was read
	locks   *locks
	parents map[ID]*Row // those that were locked first; nil: there is none
	batch   *batch      // what shares this transaction; nil: nobody
}

// update runs fn in a transaction in which everything that locks holds is locked. fn is begun anew when it returns errLocks.
func (s *Service) update(ctx context.Context, l *locks, fn func(ctx context.Context, t *step) error) error {
	for {
		err := s.c.Store.Update(ctx, func(ctx context.Context, tx Tx) error {
			t := &step{s: s, tx: tx, locks: l}
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

// after brings in order what a change of j concerns: those that wait for the same sequence key, and its parent.
func (t *step) after(ctx context.Context, j *Row) error {
	if err := t.promote(ctx, j.SequenceKey); err != nil {
		return err
	}
	return t.resume(ctx, j.Parent)
}

// change runs fn over the job id in a transaction; when fn has returned nil, what the change concerns is brought in order.
func (s *Service) change(ctx context.Context, id ID, fn func(ctx context.Context, t *step, j *Row) error) error {
	var l locks
	return s.update(ctx, &l, func(ctx context.Context, t *step) error {
		j, err := t.job(ctx, id)
		if err != nil {
			return err
		}
		if err := fn(ctx, t, j); err != nil {
			return err
		}
		return t.after(ctx, j)
	})
}

// current returns an error if token names another run than the one j is in. 0 names none.
func (j *Row) current(token int64) error {
	switch {
	case token == 0:
		return nil
	case token != j.Token:
		return fmt.Errorf("%w: job %d, token %d, not %d", ErrStale, j.ID, j.Token, token)
	case !j.State.Runs():
		return fmt.Errorf("%w: job %d is %s", ErrStale, j.ID, j.State)
	}
	return nil
}

// endable returns an error unless j runs, and its parent, if it has one, waits for it.
func (t *step) endable(j *Row, token int64) error {
	if err := j.current(token); err != nil {
		return err
	}
	if !j.State.Runs() {
		return fmt.Errorf("%w: job %d is %s", ErrNotRunning, j.ID, j.State)
	}
	if p := t.parents[j.Parent]; j.Parent != 0 && (p == nil || p.State != Paused) {
		return fmt.Errorf("%w: job %d", ErrParentNotPaused, j.ID)
	}
	return nil
}
