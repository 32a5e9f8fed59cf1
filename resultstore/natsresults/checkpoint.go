package natsresults

import (
	"context"
	"errors"

	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// The checkpoints of a task are one message, which is written with compare-and-set like the state
// of a group. It holds the fencing token of the attempt that used them last.

// checkpointKey returns the key of the message that holds the checkpoints of a task. The space
// keeps it apart from task ids.
func checkpointKey(id task.ID) string { return " k" + string(id) }

// SaveCheckpoint implements [resultstore.Checkpointer]: it reads the record and the checkpoints of
// the task, and writes the checkpoints with c. It makes three round trips. After a conflict or a
// lost answer it reads both and tries again until ctx ends. After [resultstore.ErrUnavailable] the
// checkpoint may have been stored; repeating the call is safe. It also returns:
//
//   - [resultstore.ErrStale] for a stale attempt
//   - [resultstore.ErrTooLarge] if the task would have too many checkpoints, or for the server
//   - [resultstore.ErrMalformed] for an invalid name or if a stored message cannot be read
//   - [task.ErrBadID] for an invalid id
//   - ErrClosed after Close, and ctx's error if ctx has already ended
func (s *Store) SaveCheckpoint(ctx context.Context, a resultstore.Attempt, c resultstore.Checkpoint) error {
	if err := c.Check(); err != nil {
		return err
	}
	_, err := s.checkpoints(ctx, &a, func(k *wire.Checkpoints) error { return k.Put(c) })
	return err
}

// LoadCheckpoints implements [resultstore.Checkpointer]: it reads the checkpoints and writes them
// again with the token of a. Its errors and round trips are those of SaveCheckpoint.
func (s *Store) LoadCheckpoints(ctx context.Context, a resultstore.Attempt) ([]resultstore.Checkpoint, error) {
	k, err := s.checkpoints(ctx, &a, func(*wire.Checkpoints) error { return nil })
	if err != nil {
		return nil, err
	}
	return k.Values, nil
}

// checkpoints reads the checkpoints of a task for attempt a, calls change and writes them, again
// after a conflict. It returns them, or the errors of SaveCheckpoint.
func (s *Store) checkpoints(ctx context.Context, a *resultstore.Attempt, change func(*wire.Checkpoints) error) (k *wire.Checkpoints, err error) {
	if err := check(ctx, a.ID); err != nil {
		return nil, err
	}
	if !s.begin() {
		return nil, resultstore.ErrClosed
	}
	defer s.end()
	err = s.withStream(ctx, func(st *stream) error {
		for attempt := 0; ; attempt++ {
			value, seq, err := s.get(ctx, st, checkpointKey(a.ID))
			if err != nil {
				return err
			}
			// after the checkpoints: if a later record drops them, this write meets a conflict
			old, err := s.fetch(ctx, st, a.ID)
			if err != nil {
				return err
			}
			if old.seq != 0 && !old.expired {
				if err := a.Fenced(&old.rec); err != nil {
					return err
				}
			}
			k = &wire.Checkpoints{}
			if value != nil {
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
			err = s.set(ctx, st, checkpointKey(a.ID), seq, k.Encode(), resultstore.RoundClaim(a.Kept()))
			if err == nil || !s.retryable(ctx, err) {
				return err
			}
			if !pause(ctx, attempt+1) {
				return errors.Join(natsconn.ErrUnavailable, err)
			}
		}
	})
	if err != nil {
		return nil, failure("checkpoint", err)
	}
	return k, nil
}

// dropCheckpoints deletes the checkpoints of a task and waits for the server. It repeats that after
// a lost answer, until ctx ends.
func (s *Store) dropCheckpoints(ctx context.Context, id task.ID) error {
	return s.withStream(ctx, func(*stream) error {
		_, err := s.conn.Purge(ctx, s.names.stream, s.names.record(task.ID(checkpointKey(id))))
		return err
	})
}

var _ resultstore.Checkpointer = (*Store)(nil)
