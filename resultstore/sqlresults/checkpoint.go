package sqlresults

import (
	"context"
	"errors"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// SaveCheckpoint implements [resultstore.Checkpointer]: one transaction compares the tokens of the
// record and of the checkpoints, and writes all checkpoints of the task with c. It may start a
// sweep of expired rows on a goroutine.
//
// While the outcome is unknown it repeats the call, until ctx ends. After
// [resultstore.ErrUnavailable] the checkpoint may have been stored; repeating the call is safe. It
// also returns:
//
//   - [resultstore.ErrStale] for a stale attempt
//   - [resultstore.ErrTooLarge] if the task would have too many checkpoints
//   - [resultstore.ErrMalformed] for an invalid name or if the stored value cannot be read
//   - [task.ErrBadID] for an invalid id
//   - ErrClosed after Close, and ctx's error if ctx has already ended
func (s *Store) SaveCheckpoint(ctx context.Context, a resultstore.Attempt, c resultstore.Checkpoint) error {
	if err := c.Check(); err != nil {
		return err
	}
	_, err := s.checkpoints(ctx, &a, func(k *wire.Checkpoints) error { return k.Put(c) })
	return err
}

// LoadCheckpoints implements [resultstore.Checkpointer]: one transaction takes over the token of a
// and reads the checkpoints. Its errors are those of SaveCheckpoint.
func (s *Store) LoadCheckpoints(ctx context.Context, a resultstore.Attempt) ([]resultstore.Checkpoint, error) {
	k, err := s.checkpoints(ctx, &a, func(*wire.Checkpoints) error { return nil })
	if err != nil {
		return nil, err
	}
	return k.Values, nil
}

// checkpoints reads the checkpoints of a task for attempt a, calls change and writes them, in one
// transaction. It returns them, or the errors of SaveCheckpoint. change may be called again.
func (s *Store) checkpoints(ctx context.Context, a *resultstore.Attempt, change func(*wire.Checkpoints) error) (k *wire.Checkpoints, err error) {
	if err := s.check(ctx, a.ID); err != nil {
		return nil, err
	}
	defer s.sweepSoon()
	err = s.repeat(ctx, "checkpoint", func() error {
		if err := s.readyCheckpoints(ctx); err != nil {
			return err
		}
		return s.conn.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			var there int
			var value []byte
			if err := tx.Row(ctx, s.text.enterCheckpoints, s.cfg.Namespace, string(a.ID)).Scan(&there, &value); err != nil {
				return err
			}
			if err := s.fenced(ctx, tx, a); err != nil {
				return err
			}
			k = &wire.Checkpoints{}
			if there == 1 {
				var err error
				if k, err = wire.DecodeCheckpoints(value); err != nil {
					return err
				}
			}
			if err := k.Enter(a); err != nil {
				return err
			}
			if err := change(k); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, s.text.saveCheckpoints, s.cfg.Namespace, string(a.ID), micros(a.Kept(), 0), k.Encode())
			return err
		})
	})
	return k, err
}

// readyCheckpoints makes the table of checkpoints, as ready makes the others. It is a component of
// its own, so that processes of earlier versions accept the schema of results.
func (s *Store) readyCheckpoints(ctx context.Context) error {
	err := s.points.Ready(ctx)
	if err == nil {
		s.used.Store(true)
	}
	return err
}

// fenced returns [resultstore.ErrStale] if the record of the task forbids a to use checkpoints. It
// waits for the database and returns its errors.
func (s *Store) fenced(ctx context.Context, tx *sqlconn.Tx, a *resultstore.Attempt) error {
	var r resultstore.Record
	var state string
	var final int
	err := tx.Row(ctx, s.text.token, s.cfg.Namespace, string(a.ID)).Scan(&r.Generation, &r.Deliveries, &state, &final)
	switch {
	case errors.Is(err, sqlconn.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	r.State = task.State(state)
	return a.Fenced(&r)
}

// dropCheckpoints deletes the checkpoints of a task in tx. It waits for the database and returns
// its errors.
func (s *Store) dropCheckpoints(ctx context.Context, tx *sqlconn.Tx, id string) error {
	_, err := tx.Exec(ctx, s.text.dropCheckpoints, s.cfg.Namespace, id)
	return err
}

var _ resultstore.Checkpointer = (*Store)(nil)
