package jobs

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
)

// after updates the jobs that a change of j concerns: those of its sequence key, and its parent.
func (s *Service) after(ctx context.Context, t *txn.Step, j *Row) error {
	if err := s.promote(ctx, t, j.SequenceKey); err != nil {
		return err
	}
	return s.resume(ctx, t, j.Parent)
}

// endable returns an error unless j runs, and its parent, if it has one, is PAUSED.
func (s *Service) endable(t *txn.Step, j *Row, token int64) error {
	if err := rules.CheckToken(j, token); err != nil {
		return err
	}
	if !j.State.Runs() {
		return fmt.Errorf("%w: job %d is %s", ErrNotRunning, j.ID, j.State)
	}
	if p := t.Parents[j.Parent]; j.Parent != 0 && (p == nil || p.State != Paused) {
		return fmt.Errorf("%w: job %d", ErrParentNotPaused, j.ID)
	}
	return nil
}
