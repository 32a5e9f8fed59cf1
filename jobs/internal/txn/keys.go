package txn

import (
	"context"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// alive are the states of jobs that are not over.
func alive() []jobstore.State {
	return []jobstore.State{jobstore.Queued, jobstore.RunQueued, jobstore.Running, jobstore.Paused, jobstore.Waiting}
}

// Free returns an error if another job than j that is not over has one of j's keys, or a task that waits for its answer. They are locked.
func (t *Step) Free(ctx context.Context, j *jobstore.Row) error {
	for _, unique := range []bool{true, false} {
		key, find := j.Key, t.Tx.OfKey
		if unique {
			key, find = j.UniqueKey, t.Tx.OfUniqueKey
		}
		if key == "" {
			continue
		}
		found, err := find(ctx, j.Name, key, jobstore.Page{States: alive(), Limit: 2})
		if err != nil {
			return err
		}
		for i := range found {
			if found[i].ID != j.ID && !t.batch.read(found[i].ID) {
				return &jobstore.KeyTakenError{Key: key, Job: found[i].ID}
			}
		}
		if other := t.batch.owner(j.Name, key, unique, j.ID); other != nil {
			return &jobstore.KeyTakenError{Key: key, Job: other.ID}
		}
	}
	return t.FreeOfTasks(ctx, j.Name, j.Key)
}

// FreeOfTasks returns an error if a task waits for an answer of a name and a key, which are locked.
func (t *Step) FreeOfTasks(ctx context.Context, name, key string) error {
	if key == "" {
		return nil
	}
	d, err := t.Tx.DeferralOf(ctx, name, key)
	if err == nil && d != nil && d.Open() {
		return &jobstore.KeyTakenError{Key: key, Task: d.Task}
	}
	return err
}
