package txn

import (
	"errors"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// ErrLocks says that a transaction has to start again, with more locks.
var ErrLocks = errors.New("jobs: locks are missing")

// Locks is the set of locks that a transaction takes before it touches its jobs. They are taken in
// this order: sequences, unique names together with unique keys, keys of answers, parents.
//
// The set is known only when the jobs have been read. Missing locks are then added, and the
// transaction starts again. Sequence keys and parents of a job never change; a key is read again.
// The zero value is ready.
type Locks struct {
	Sequences  map[string]bool
	unique     map[string]bool
	uniqueKeys map[string]bool // by KeyDigest
	keys       map[string]bool // by KeyDigest
	parents    map[jobstore.ID]bool
}

// AddSequence notes a sequence key.
func (l *Locks) AddSequence(key string) {
	if l.Sequences == nil {
		l.Sequences = map[string]bool{}
	}
	l.Sequences[key] = true
}

// AddUnique notes a name that only one job may have.
func (l *Locks) AddUnique(name string) {
	if l.unique == nil {
		l.unique = map[string]bool{}
	}
	l.unique[name] = true
}

// AddParent notes a parent.
func (l *Locks) AddParent(id jobstore.ID) {
	if l.parents == nil {
		l.parents = map[jobstore.ID]bool{}
	}
	l.parents[id] = true
}

// AddJob notes the locks that a change of the state of j needs. Returns ErrLocks if one was
// missing.
func (l *Locks) AddJob(j *jobstore.Row) error {
	err := l.AddSequenceOf(j)
	if j.Parent != 0 && !l.parents[j.Parent] {
		l.AddParent(j.Parent)
		err = ErrLocks
	}
	return err
}

// AddSequenceOf notes the sequence key of j. Returns ErrLocks if it was missing.
func (l *Locks) AddSequenceOf(j *jobstore.Row) error {
	if j.SequenceKey == "" || l.Sequences[j.SequenceKey] {
		return nil
	}
	l.AddSequence(j.SequenceKey)
	return ErrLocks
}

// addUniqueKey notes the lock that a job needs to get or to reuse a unique key. Returns ErrLocks if
// it was missing. "" needs none.
func (l *Locks) addUniqueKey(name, key string) error { return addKeyLock(&l.uniqueKeys, name, key) }

// AddKey is addUniqueKey for keys of answers.
func (l *Locks) AddKey(name, key string) error { return addKeyLock(&l.keys, name, key) }

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

// AddKeys notes the keys of j under a name. Returns ErrLocks if one was missing.
func (l *Locks) AddKeys(j *jobstore.Row, name string) error {
	return errors.Join(l.addUniqueKey(name, j.UniqueKey), l.AddKey(name, j.Key))
}
