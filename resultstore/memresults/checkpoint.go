package memresults

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// checkpointing holds the checkpoints of the tasks of a table. sweep removes expired ones. Guarded
// by table.mu.
type checkpointing struct {
	tasks map[task.ID]*checkpoints
	swept time.Duration
}

// checkpoints are those of one task.
type checkpoints struct {
	wire.Checkpoints
	expires time.Duration // since the start of the store
}

// sweep removes expired checkpoints, at most once per gatherSweep. It makes the map at its first
// call. Call it with table.mu held, before an entry is added.
func (k *checkpointing) sweep(now time.Duration) {
	if k.tasks == nil {
		k.tasks = make(map[task.ID]*checkpoints)
	}
	if now-k.swept < gatherSweep {
		return
	}
	k.swept = now
	for id, c := range k.tasks {
		if c.expires <= now {
			delete(k.tasks, id)
		}
	}
}

// SaveCheckpoint implements [resultstore.Checkpointer]: it stores a copy of c. Returns ErrStale if
// a newer attempt has used the checkpoints, or if the record of the task is newer or final. It also
// returns ErrTooLarge or ErrMalformed for a checkpoint, [task.ErrBadID] for an invalid id,
// ErrClosed after Close, and ctx's error if ctx has ended. It takes t.mu.
func (s *Store) SaveCheckpoint(ctx context.Context, a resultstore.Attempt, c resultstore.Checkpoint) error {
	if err := check(ctx, a.ID); err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return err
	}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	_, err := s.enter(&a, func(k *wire.Checkpoints) error { return k.Put(c) })
	return err
}

// LoadCheckpoints implements [resultstore.Checkpointer]: it returns copies of the checkpoints of a
// task. Later calls of older attempts return ErrStale. Its errors are those of SaveCheckpoint. It
// takes t.mu.
func (s *Store) LoadCheckpoints(ctx context.Context, a resultstore.Attempt) ([]resultstore.Checkpoint, error) {
	if err := check(ctx, a.ID); err != nil {
		return nil, err
	}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	k, err := s.enter(&a, func(*wire.Checkpoints) error { return nil })
	if err != nil {
		return nil, err
	}
	all := slices.Clone(k.Values)
	for i := range all {
		all[i].Value = bytes.Clone(all[i].Value)
	}
	return all, nil
}

// enter finds or makes the checkpoints of a task, takes over the fencing token of a, calls change
// and renews the expiry. After an error nothing was changed. Returns ErrStale, ErrClosed or the
// error of change. Call it with t.mu held.
func (s *Store) enter(a *resultstore.Attempt, change func(*wire.Checkpoints) error) (*checkpoints, error) {
	if s.closed {
		return nil, resultstore.ErrClosed
	}
	if e := s.t.find(a.ID); e != nil {
		if err := a.Fenced(&e.rec); err != nil {
			return nil, err
		}
	}
	now := s.t.now()
	s.t.checkpoints.sweep(now)
	k := s.t.checkpoints.tasks[a.ID]
	if k == nil || k.expires <= now {
		k = &checkpoints{}
	}
	next := k.Checkpoints
	if err := next.Enter(a); err != nil {
		return nil, err
	}
	if err := change(&next); err != nil {
		return nil, err
	}
	k.Checkpoints, k.expires = next, deadline(now, a.Kept())
	s.t.checkpoints.tasks[a.ID] = k
	return k, nil
}

var _ resultstore.Checkpointer = (*Store)(nil)
