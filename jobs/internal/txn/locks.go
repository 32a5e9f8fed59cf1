package txn

import (
	"errors"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// ErrLocks says that a transaction has to begin anew, with more locked from the start.
var ErrLocks = errors.New("jobs: locks are missing")

// Locks is what a transaction has to lock before it touches the jobs it is about, always in this order: sequences, unique names, unique keys, keys of answers,
// parents. It is known only when the jobs have been read, and then what is missing is added and the transaction begins anew: sequence keys and parents of a
// job never change, and a key is looked at again.
type Locks struct {
	Sequences  map[string]bool
	unique     map[string]bool
	uniqueKeys map[string]bool // by jobstore.KeyDigest
	keys       map[string]bool // likewise
	parents    map[jobstore.ID]bool
}

// AddSequence notes a sequence key.
func (l *Locks) AddSequence(key string) {
	if l.Sequences == nil {
		l.Sequences = map[string]bool{}
	}
	l.Sequences[key] = true
}

// AddUnique notes a name of which there may be only one job.
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

// AddJob notes what has to be locked when the state of j changes, and returns ErrLocks if that was not locked.
func (l *Locks) AddJob(j *jobstore.Row) error {
	err := l.AddSequenceOf(j)
	if j.Parent != 0 && !l.parents[j.Parent] {
		l.AddParent(j.Parent)
		err = ErrLocks
	}
	return err
}

// AddSequenceOf notes the sequence key of j, and returns ErrLocks if it was not locked.
func (l *Locks) AddSequenceOf(j *jobstore.Row) error {
	if j.SequenceKey == "" || l.Sequences[j.SequenceKey] {
		return nil
	}
	l.AddSequence(j.SequenceKey)
	return ErrLocks
}

// addUniqueKey notes what has to be locked before a job gets such a key, or begins anew with it,
// and returns ErrLocks if it was not. "" is none.
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

// AddKeys notes the keys that j would have under a name.
func (l *Locks) AddKeys(j *jobstore.Row, name string) error {
	return errors.Join(l.addUniqueKey(name, j.UniqueKey), l.AddKey(name, j.Key))
}
