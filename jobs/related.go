package jobs

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
)

// updateRelated lets the jobs that depend on j proceed after a change of j. The next job of its
// sequence becomes QUEUED if no job of the sequence is in progress. A PAUSED parent without pending
// children becomes QUEUED. The locks of both must be held (txn.Locks.AddJob).
func (s *Service) updateRelated(ctx context.Context, t *txn.Step, j *Row) error {
	if err := s.promote(ctx, t, j.SequenceKey); err != nil {
		return err
	}
	return s.resumeParent(ctx, t, j.Parent)
}

// checkCanEnd returns an error unless token is current, j runs, and the parent of j, if it has one,
// is PAUSED.
func (s *Service) checkCanEnd(t *txn.Step, j *Row, token int64) error {
	if err := rules.CheckToken(j, token); err != nil {
		return err
	}
	if !j.State.Runs() {
		return fmt.Errorf("%w: job %d is %s", ErrNotRunning, j.ID, j.State)
	}
	if p := t.Rows[j.Parent]; j.Parent != 0 && (p == nil || p.State != Paused) {
		return fmt.Errorf("%w: job %d", ErrParentNotPaused, j.ID)
	}
	return nil
}
