package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// KeyTakenError says which job has a key. It wraps [ErrKeyTaken].
type KeyTakenError struct {
	// Key is the Key or the UniqueKey that was asked for.
	Key string
	// Job has it, and is not over. 0: Task, or another job of the same CreateAll.
	Job ID
	// Task has it, and waits for its answer. "": Job.
	Task task.ID
}

// Error says which job has which key.
func (e *KeyTakenError) Error() string {
	switch {
	case e.Task != "":
		return fmt.Sprintf("%v: %q, task %s, which waits for its answer", ErrKeyTaken, e.Key, e.Task)
	case e.Job == 0:
		return fmt.Sprintf("%v: %q, a job that is made together with it", ErrKeyTaken, e.Key)
	}
	return fmt.Sprintf("%v: %q, job %d", ErrKeyTaken, e.Key, e.Job)
}

// Unwrap returns [ErrKeyTaken].
func (e *KeyTakenError) Unwrap() error { return ErrKeyTaken }

// alive are the states of jobs that are not over.
func alive() []State { return []State{Queued, RunQueued, Running, Paused, Waiting} }

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

// free returns an error if another job than j that is not over has one of j's keys, or a task that waits for its answer. They are locked.
func (t *step) free(ctx context.Context, j *Row) error {
	for _, unique := range []bool{true, false} {
		key, find := j.Key, t.tx.OfKey
		if unique {
			key, find = j.UniqueKey, t.tx.OfUniqueKey
		}
		if key == "" {
			continue
		}
		found, err := find(ctx, j.Name, key, Page{States: alive(), Limit: 2})
		if err != nil {
			return err
		}
		for i := range found {
			if found[i].ID != j.ID && !t.batch.read(found[i].ID) {
				return &KeyTakenError{Key: key, Job: found[i].ID}
			}
		}
		if other := t.batch.owner(j.Name, key, unique, j.ID); other != nil {
			return &KeyTakenError{Key: key, Job: other.ID}
		}
	}
	return t.freeOfTasks(ctx, j.Name, j.Key)
}

// freeOfTasks returns an error if a task waits for an answer of a name and a key, which are locked.
func (t *step) freeOfTasks(ctx context.Context, name, key string) error {
	if key == "" {
		return nil
	}
	d, err := t.tx.DeferralOf(ctx, name, key)
	if err == nil && d != nil && d.Open() {
		return &KeyTakenError{Key: key, Task: d.Task}
	}
	return err
}

// rename gives j a name, under which its keys have to be free; they may be locked already.
func (t *step) rename(ctx context.Context, j *Row, name string) error {
	if name == "" || name == j.Name {
		return nil
	}
	if j.Key != "" || j.UniqueKey != "" {
		if err := t.locks.addKeys(j, name); err != nil {
			return err
		}
		renamed := *j
		renamed.Name = name
		if err := t.free(ctx, &renamed); err != nil {
			return err
		}
	}
	j.Name = name
	return nil
}
