package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// readNames finds the oldest unique job of each name, locks it, and stores it in m.named. A name
// without such a job gets nil. If a found job has changed before its lock, it looks for the name
// again. It deletes names that are done from the map names. Returns ErrLocks, for another try, if a
// job with a higher id is locked already. Returns errors of the store.
func (m *maker) readNames(ctx context.Context, names map[jobstore.Group]bool) error {
	m.named = make(map[jobstore.Group]*Row, len(names))
	for g := range names {
		m.named[g] = nil
	}
	for len(names) > 0 {
		found, err := m.Tx.First(ctx, nil, slices.Collect(maps.Keys(names))...)
		if err != nil || len(found) == 0 {
			return err
		}
		for _, id := range found {
			if m.Rows[id] == nil { // a parent that did not exist before; now it can be locked
				delete(m.Rows, id)
			}
		}
		locked, err := m.Jobs(ctx, slices.Collect(maps.Values(found))...)
		if err != nil {
			return err
		}
		for g, id := range found {
			if j := locked[id]; j != nil && j.In(g) {
				m.named[g] = j
				delete(names, g)
			} // otherwise it changed after it was found
		}
		maps.DeleteFunc(names, func(g jobstore.Group, _ bool) bool { return found[g] == 0 })
	}
	return nil
}

// updateExisting applies a unique spec to the existing job old. j is the draft of the spec. With
// Keep, or if the Data are equal as JSON, old stays unchanged. Otherwise it merges the Data of j
// into old and sets Repeat, and Priority if the spec sets it. write saves old later.
//
// Returns ErrOtherParent if the parents differ. Returns a FieldError for another SequenceKey, for a
// Repeat of a job with a SequenceKey, or for merged Data that are too long.
func (m *maker) updateExisting(old, j *Row, spec *Spec) error {
	if old.Parent != j.Parent {
		return fmt.Errorf("%w: job %d", ErrOtherParent, old.ID)
	}
	// The sequence key stays: with another one, two jobs of a sequence could run at the same time.
	if j.SequenceKey != "" && j.SequenceKey != old.SequenceKey {
		return &FieldError{Field: "sequenceKey", Problem: fmt.Sprintf("job %d exists and has another", old.ID)}
	}
	if old.SequenceKey != "" && j.Repeat != "" {
		return &FieldError{Field: "repeat", Problem: fmt.Sprintf("not together with sequenceKey, which job %d has", old.ID)}
	}
	if spec.Keep || rules.SameData(old.Data, j.Data) {
		return nil
	}
	merged, err := rules.MergePatch(old.Data, j.Data)
	if err != nil {
		return err
	}
	if _, err := rules.CheckGiven(merged); err != nil {
		return err
	}
	old.Data, old.Repeat = merged, j.Repeat
	old.Priority = spec.Priority.Or(old.Priority)
	if old.ID != 0 { // otherwise the same CreateAll creates it
		m.changed[old.ID] = old
	}
	return nil
}

// rename sets the name of j, without saving j. It does nothing if name is "" or unchanged.
//
// If j has a Key or a UniqueKey, these must be free under the new name. Returns ErrKeyTaken if
// another open job or a waiting task has one of them. Returns ErrLocks if these keys are not locked
// yet; the locks are then added for the next try. Returns errors of the store. After an error the
// name stays.
func (s *Service) rename(ctx context.Context, t *txn.Step, j *Row, name string) error {
	if name == "" || name == j.Name {
		return nil
	}
	if j.Key != "" || j.UniqueKey != "" {
		if err := t.Locks.AddKeys(j, name); err != nil {
			return err
		}
		renamed := *j
		renamed.Name = name
		if err := t.Free(ctx, &renamed); err != nil {
			return err
		}
	}
	j.Name = name
	return nil
}
