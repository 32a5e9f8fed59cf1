package jobs

import (
	"bytes"
	"context"

	"github.com/swarmiji/swarmiji/jobs/internal/txn"
)

// canShareTx reports whether createShared can create the job: the spec has a Key, and no UniqueKey,
// SequenceKey, Parent or Unique. The job then depends on its Key alone, which must be free.
func (spec *Spec) canShareTx() bool {
	return spec.Key != "" && spec.UniqueKey == "" && spec.SequenceKey == "" && spec.Parent == 0 && !spec.Unique
}

// createShared creates one job with a Key, for a Spec that canShareTx accepts. It blocks until the
// commit. Changes of other callers may share its transaction: a transaction for this job alone
// would cost six round trips to a server.
//
// Returns a KeyTakenError if an open job or a waiting task has the key. Returns ErrUnavailable if
// ctx ends first; the job may then still be created. Returns other errors of the store unchanged.
func (s *Service) createShared(ctx context.Context, draft Row) (Created, error) {
	draft.Data = bytes.Clone(draft.Data) // the draft may outlive the call
	var made *Row
	var id ID
	err := s.txn.Batch(ctx, &txn.Change{
		Name: draft.Name, Key: draft.Key,
		Do: func(ctx context.Context, t *txn.Step, existing *Row) error {
			switch {
			case existing != nil:
				return &KeyTakenError{Key: draft.Key, Job: existing.ID}
			case t.Creates(draft.Name, draft.Key):
				return txn.ErrNeedsOwnTx // a transaction of its own finds the job that has the key
			}
			if err := t.FreeOfTasks(ctx, draft.Name, draft.Key); err != nil {
				return err
			}
			j := draft
			s.setTimes(&j, t.Now)
			made = &j
			return t.Save(ctx, made)
		},
		Then: func() { id = made.ID },
	})
	if err != nil { // id is not read here: the transaction may still run
		return Created{}, err
	}
	return Created{ID: id}, nil
}
