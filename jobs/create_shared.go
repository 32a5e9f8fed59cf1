package jobs

import (
	"bytes"
	"context"

	"github.com/swarmiji/swarmiji/jobs/internal/txn"
)

// sharesMaking reports whether a job can be made in a transaction that is shared: nothing is looked at but whether its Key is free.
func (spec *Spec) sharesMaking() bool {
	return spec.Key != "" && spec.UniqueKey == "" && spec.SequenceKey == "" && spec.Parent == 0 && !spec.Unique
}

// createShared makes one job with a Key, together with what else is done at the same time: it would else be a transaction of its own, six trips to a server.
func (s *Service) createShared(ctx context.Context, draft Row) (Created, error) {
	draft.Data = bytes.Clone(draft.Data) // it may outlive the call
	var made *Row
	var id ID
	err := s.txn.Batch(ctx, &txn.Change{
		Name: draft.Name, Key: draft.Key,
		Do: func(ctx context.Context, t *txn.Step, there *Row) error {
			switch {
			case there != nil:
				return &KeyTakenError{Key: draft.Key, Job: there.ID}
			case t.Makes(draft.Name, draft.Key):
				return txn.ErrAlone // to be told which job has the key
			}
			if err := t.FreeOfTasks(ctx, draft.Name, draft.Key); err != nil {
				return err
			}
			j := draft
			s.born(&j, t.Now)
			made = &j
			return t.Save(ctx, made)
		},
		Then: func() { id = made.ID },
	})
	if err != nil { // it may be under way still
		return Created{}, err
	}
	return Created{ID: id}, nil
}
