package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// there returns the oldest job that a unique spec means, nil if there is none.
func (m *maker) there(ctx context.Context, spec *Spec) (*Row, error) {
	p := jobstore.Page{Limit: 1}
	for {
		found, err := m.Tx.Named(ctx, spec.Name, p)
		if err != nil || len(found) == 0 {
			return nil, err
		}
		for i := range found {
			if found[i].Mock == spec.Mock && rules.IsUnique(&found[i]) {
				if p := m.Parents[found[i].ID]; p != nil { // this transaction has locked it as a parent
					return p, nil
				}
				j, err := m.Tx.Get(ctx, found[i].ID)
				if errors.Is(err, jobstore.ErrNotFound) || err == nil && (j.Name != spec.Name || !rules.IsUnique(&j)) { // since it was found
					continue
				}
				return &j, err
			}
		}
		p.After, p.Limit = found[len(found)-1].ID, page
	}
}

// meet applies a spec to the existing job.
func (m *maker) meet(ctx context.Context, old, j *Row, spec *Spec) error {
	if old.Parent != j.Parent {
		return fmt.Errorf("%w: job %d", ErrOtherParent, old.ID)
	}
	// A job keeps its sequence key: with another one, two jobs of it could run at a time.
	if j.SequenceKey != "" && j.SequenceKey != old.SequenceKey {
		return &FieldError{Field: "sequenceKey", Problem: fmt.Sprintf("job %d is there and has another", old.ID)}
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
	return m.Save(ctx, old)
}

// rename gives j a name, under which its keys have to be free. They may be locked already.
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
