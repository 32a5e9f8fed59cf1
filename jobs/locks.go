package jobs

import (
	"errors"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

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

// addUniqueKey and addKey note what has to be locked before a job gets such a key, or begins anew with it, and return errLocks if it was not. "" is none.
func (l *locks) addUniqueKey(name, key string) error { return addKeyLock(&l.uniqueKeys, name, key) }

func (l *locks) addKey(name, key string) error { return addKeyLock(&l.keys, name, key) }

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
	return errLocks
}

// addKeys notes the keys that j would have under a name.
func (l *locks) addKeys(j *Row, name string) error {
	return errors.Join(l.addUniqueKey(name, j.UniqueKey), l.addKey(name, j.Key))
}
