package jobs

import (
	"context"
	"slices"

	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// pending is the states of children that their parent waits for. It does not wait for a FAILED
// child, which is kept.
func pending() []State { return []State{Queued, RunQueued, Running, Paused} }

// page is how many jobs one read of a long list returns.
const page = 256

// hasPending reports whether a parent has children that it waits for.
func (s *Service) hasPending(ctx context.Context, t *txn.Step, parent ID) (bool, error) {
	found, err := t.Tx.Children(ctx, parent, jobstore.Page{States: pending(), Limit: 1})
	return len(found) > 0, err
}

// resume makes a PAUSED parent QUEUED if it waits for no child any more. The parent was locked
// first.
func (s *Service) resume(ctx context.Context, t *txn.Step, parent ID) error {
	p := t.Parents[parent]
	if parent == 0 || p == nil || p.State != Paused {
		return nil
	}
	if waits, err := s.hasPending(ctx, t, parent); waits || err != nil {
		return err
	}
	p.State = Queued
	return t.Save(ctx, p)
}

// unpause makes the children QUEUED that waited for their parent to pause.
func (s *Service) unpause(ctx context.Context, t *txn.Step, parent ID) error {
	return s.eachChild(ctx, t, parent, []State{Paused}, func(children []*Row) error {
		for _, c := range children {
			c.State = Queued
		}
		return t.Save(ctx, children...)
	})
}

// clear deletes the ended children that their parent has seen.
func (s *Service) clear(ctx context.Context, t *txn.Step, parent ID) error {
	return s.eachChild(ctx, t, parent, []State{Finished, Cancelled}, func(children []*Row) error {
		ids := make([]ID, len(children))
		for i, c := range children {
			ids[i] = c.ID
		}
		return t.Tx.Delete(ctx, ids...)
	})
}

// eachChild locks the children of some states, page by page, and calls fn with them.
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
		if found, err = t.Tx.Jobs(ctx, ids...); err != nil {
			return err
		}
		children := make([]*Row, 0, len(found))
		for i := range found {
			if slices.Contains(states, found[i].State) {
				children = append(children, &found[i])
			}
		}
		if err := fn(children); err != nil {
			return err
		}
	}
}
