package jobs

import (
	"bytes"
	"context"

	"github.com/swarmiji/swarmiji/jobs/internal/txn"
)

// sharesMaking reports whether a job can be created in a shared transaction: only its Key has to be
// free.
func (spec *Spec) sharesMaking() bool {
	return spec.Key != "" && spec.UniqueKey == "" && spec.SequenceKey == "" && spec.Parent == 0 && !spec.Unique
}

// createShared creates one job with a Key in a shared transaction. A transaction of its own would
// take six trips to a server.
func (s *Service) createShared(ctx context.Context, draft Row) (Created, error) {
	draft.Data = bytes.Clone(draft.Data) // the draft may outlive the call
	var made *Row
	var id ID
	err := s.txn.Batch(ctx, &txn.Change{
		Name: draft.Name, Key: draft.Key,
		Do: func(ctx context.Context, t *txn.Step, there *Row) error {
			switch {
			case there != nil:
				return &KeyTakenError{Key: draft.Key, Job: there.ID}
			case t.Makes(draft.Name, draft.Key):
				return txn.ErrAlone // an own transaction finds the job that has the key
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
	if err != nil { // the transaction may still run
		return Created{}, err
	}
	return Created{ID: id}, nil
}
