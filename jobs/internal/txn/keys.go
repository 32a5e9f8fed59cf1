package txn

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Free returns nil if the Key and the UniqueKey of j are free, or an error that names j and wraps a
// KeyTakenError. A key is taken if an open job other than j has it. The Key is also taken if a task
// waits for the answer to it. Returns errors of the store. Call it with these keys locked.
func (t *Step) Free(ctx context.Context, j *jobstore.Row) error {
	keys := j.Keys()
	taken, err := t.Taken(ctx, j.ID, keys...)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := taken[k]; err != nil {
			return fmt.Errorf("job %d: %w", j.ID, err)
		}
	}
	return nil
}

// Taken returns a KeyTakenError for each of these keys that an open job has. A key of answers
// (ByKey) can also be taken by a task that waits for the answer; if both have it, the error names
// the job. Free keys are left out; without keys the map is nil.
//
// The job except does not count; 0: all jobs count. Jobs count as the earlier changes of a batch
// have left them. Returns errors of the store. Call it with the keys locked.
func (t *Step) Taken(ctx context.Context, except jobstore.ID, keys ...jobstore.Group) (map[jobstore.Group]error, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	found, err := t.Tx.First(ctx, jobstore.OpenStates(), keys...)
	if err != nil {
		return nil, err
	}
	tasks, err := t.Tx.OpenDeferrals(ctx, keys...)
	if err != nil {
		return nil, err
	}
	taken := map[jobstore.Group]error{}
	for _, k := range keys {
		id, ok := found[k]
		if ok = ok && id != except && !t.batch.read(id); !ok {
			if other := t.batch.owner(k, except); other != nil {
				id, ok = other.ID, true
			}
		}
		if waiting, waits := tasks[k]; ok {
			taken[k] = &jobstore.KeyTakenError{Key: k.Key, Job: id}
		} else if waits {
			taken[k] = &jobstore.KeyTakenError{Key: k.Key, Task: waiting}
		}
	}
	return taken, nil
}

// FreeOfTasks returns nil if no task waits for the answer to this name and key (an open deferral),
// or a KeyTakenError with the task. It does not look at jobs. Returns errors of the store. Call it
// with the key locked.
func (t *Step) FreeOfTasks(ctx context.Context, name, key string) error {
	k := jobstore.Group{By: jobstore.ByKey, Name: name, Key: key}
	tasks, err := t.Tx.OpenDeferrals(ctx, k)
	if id, waits := tasks[k]; err == nil && waits {
		err = &jobstore.KeyTakenError{Key: key, Task: id}
	}
	return err
}
