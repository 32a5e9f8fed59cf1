package jobs

import (
	"context"
	"slices"

	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// pending returns the states of children that a PAUSED parent waits for. FAILED is not one of them.
func pending() []State { return []State{Queued, RunQueued, Running, Paused} }

// page is the number of jobs that one read of a long list returns.
const page = 256

// hasPending reports whether the job has children in a state that a parent waits for (pending). It
// locks nothing. Returns the error of reading them.
func (s *Service) hasPending(ctx context.Context, t *txn.Step, parent ID) (bool, error) {
	found, err := t.Tx.Children(ctx, parent, jobstore.Page{States: pending(), Limit: 1})
	return len(found) > 0, err
}

// resumeParent makes a PAUSED parent QUEUED, and saves it, if it has no pending children. It does
// nothing if parent is 0, or if the job is not PAUSED or not locked in t. Call it with the parent
// locked in t. Returns errors of the store.
func (s *Service) resumeParent(ctx context.Context, t *txn.Step, parent ID) error {
	p := t.Rows[parent]
	if parent == 0 || p == nil || p.State != Paused {
		return nil
	}
	if waits, err := s.hasPending(ctx, t, parent); waits || err != nil {
		return err
	}
	p.State = Queued
	return t.Save(ctx, p)
}

// unpauseChildren makes the PAUSED children of a job QUEUED, locked and saved page by page. These
// were created while the parent ran; they may start now. Returns the errors of eachChild.
func (s *Service) unpauseChildren(ctx context.Context, t *txn.Step, parent ID) error {
	return s.eachChild(ctx, t, parent, []State{Paused}, func(children []*Row) error {
		for _, c := range children {
			c.State = Queued
		}
		return t.Save(ctx, children...)
	})
}

// deleteSeenChildren locks and deletes the FINISHED and CANCELLED children of a job. The claim has
// passed them to the job's worker, so they are not needed after a successful run. Returns the
// errors of eachChild.
func (s *Service) deleteSeenChildren(ctx context.Context, t *txn.Step, parent ID) error {
	return s.eachChild(ctx, t, parent, []State{Finished, Cancelled}, func(children []*Row) error {
		ids := make([]ID, len(children))
		for i, c := range children {
			ids[i] = c.ID
		}
		return t.Tx.Delete(ctx, ids...)
	})
}

// eachChild locks the children that are in one of the given states, page by page in the order of
// ids. It calls fn with each page, which may be empty. A child that has left these states before
// its lock is left out. It stops at the first error, of fn or of the store. Returns ErrLocks, for
// another try, if a job with a higher id is locked already.
func (s *Service) eachChild(ctx context.Context, t *txn.Step, parent ID, states []State, fn func([]*Row) error) error {
	after := ID(0)
	for {
		found, err := t.Tx.Children(ctx, parent, jobstore.Page{States: states, After: after, Limit: page})
		if err != nil || len(found) == 0 {
			return err
		}
		ids := make([]ID, len(found))
		for i := range found {
			ids[i] = found[i].ID
		}
		after = ids[len(ids)-1]
		locked, err := t.Jobs(ctx, ids...)
		if err != nil {
			return err
		}
		children := make([]*Row, 0, len(locked))
		for _, id := range ids {
			if c := locked[id]; c != nil && slices.Contains(states, c.State) {
				children = append(children, c)
			}
		}
		if err := fn(children); err != nil {
			return err
		}
	}
}
