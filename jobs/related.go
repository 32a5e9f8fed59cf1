package jobs

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
)

// updateRelated lets the jobs that depend on j proceed after a change of j, and saves them. The
// oldest WAITING job of its sequence becomes QUEUED if no job of the sequence is in progress. A
// PAUSED parent becomes QUEUED if it has no pending children. Call it after saving j, with the
// sequence key and the parent of j locked. Returns errors of the store, and ErrLocks (promote).
func (s *Service) updateRelated(ctx context.Context, t *txn.Step, j *Row) error {
	if err := s.promote(ctx, t, j.SequenceKey); err != nil {
		return err
	}
	return s.resumeParent(ctx, t, j.Parent)
}

// checkCanEnd returns nil if j runs, token is current or 0, and the parent of j, if it has one, is
// PAUSED. Otherwise it returns
//
//   - ErrStale if token is not 0 and is not the token of a running attempt;
//   - ErrNotRunning if token is 0 and j does not run;
//   - ErrParentNotPaused if the parent is not PAUSED, or is not among the locked rows of t.
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
