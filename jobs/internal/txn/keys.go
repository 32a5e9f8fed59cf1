package txn

import (
	"context"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Free returns an ErrKeyTaken if another job that is not over, or a waiting task, has a key of j.
// The caller has locked the keys.
func (t *Step) Free(ctx context.Context, j *jobstore.Row) error {
	for _, unique := range []bool{true, false} {
		key, find := j.Key, t.Tx.OfKey
		if unique {
			key, find = j.UniqueKey, t.Tx.OfUniqueKey
		}
		if key == "" {
			continue
		}
		found, err := find(ctx, j.Name, key, jobstore.Page{States: jobstore.OpenStates(), Limit: 2})
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

// FreeOfTasks returns an ErrKeyTaken if a task waits for the answer of a name and a key. The caller
// has locked the key.
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
