package txn

import (
	"errors"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// ErrLocks reports that a transaction must start again with more locks.
var ErrLocks = errors.New("jobs: locks are missing")

// Locks is the set of locks that a transaction takes before it reads its jobs. They are taken in
// this order: sequences, unique names together with unique keys, keys of answers, rows.
//
// The complete set is known only after the jobs were read. Missing locks are then added, and the
// transaction starts again. The sequence key and the parent of a job never change; its keys may, so
// they are checked again. The zero value is ready for use.
type Locks struct {
	Sequences  map[string]bool
	unique     map[string]bool
	uniqueKeys map[string]bool      // by KeyDigest
	keys       map[string]bool      // by KeyDigest
	rows       map[jobstore.ID]bool // parents, and jobs that an earlier try needed in another order
	hasty      bool                 // wait for the names and the job of one try for a moment only
	once       bool                 // fail with ErrHeld instead of trying a held lock again
	held       bool                 // an earlier try has found a held lock
}

// AddSequence adds the lock of a sequence key.
func (l *Locks) AddSequence(key string) {
	if l.Sequences == nil {
		l.Sequences = map[string]bool{}
	}
	l.Sequences[key] = true
}

// AddUnique adds the lock of a name that only one job may have.
func (l *Locks) AddUnique(name string) {
	if l.unique == nil {
		l.unique = map[string]bool{}
	}
	l.unique[name] = true
}

// AddRow adds a job that must be locked before the others, such as a parent or a job with a lower
// id.
func (l *Locks) AddRow(id jobstore.ID) {
	if l.rows == nil {
		l.rows = map[jobstore.ID]bool{}
	}
	l.rows[id] = true
}

// AddJob adds the locks that a change of the state of j needs: its sequence key and its parent, if
// it has them. Returns ErrLocks if l lacked one of them; the transaction must then start again.
// Returns nil otherwise.
func (l *Locks) AddJob(j *jobstore.Row) error {
	err := l.AddSequenceOf(j)
	if j.Parent != 0 && !l.rows[j.Parent] {
		l.AddRow(j.Parent)
		err = ErrLocks
	}
	return err
}

// AddSequenceOf adds the lock of the sequence key of j, if it has one. Returns ErrLocks if l lacked
// it; the transaction must then start again.
func (l *Locks) AddSequenceOf(j *jobstore.Row) error {
	if j.SequenceKey == "" || l.Sequences[j.SequenceKey] {
		return nil
	}
	l.AddSequence(j.SequenceKey)
	return ErrLocks
}

// addUniqueKey adds the lock that a job needs to get or to reuse a unique key. Returns ErrLocks if
// l lacked it; a caller whose transaction has not begun ignores this. "" needs no lock.
func (l *Locks) addUniqueKey(name, key string) error { return addKeyLock(&l.uniqueKeys, name, key) }

// AddKey adds the lock of a name and a key of answers. Returns ErrLocks if l lacked it; a caller
// whose transaction has not begun ignores this. An empty key needs no lock.
func (l *Locks) AddKey(name, key string) error { return addKeyLock(&l.keys, name, key) }

// addKeyLock adds the lock of a name and a key to a set, which it creates if it is nil. Returns
// ErrLocks if the set lacked it. An empty key needs no lock.
func addKeyLock(to *map[string]bool, name, key string) error {
	if key == "" {
		return nil
	}
	lock := jobstore.KeyDigest(name, key)
	if (*to)[lock] {
		return nil
	}
	if *to == nil {
		*to = map[string]bool{}
	}
	(*to)[lock] = true
	return ErrLocks
}

// AddKeys adds the locks of the Key and the UniqueKey of j under a name, as far as they are set.
// Returns an error that wraps ErrLocks if l lacked one of them.
func (l *Locks) AddKeys(j *jobstore.Row, name string) error {
	return errors.Join(l.addUniqueKey(name, j.UniqueKey), l.AddKey(name, j.Key))
}
