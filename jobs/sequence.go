package jobs

import (
	"context"

	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// sequenceHolders returns the states of a sequence's current job: QUEUED, RUNQUEUED, RUNNING and
// PAUSED. A sequence is the jobs with one SequenceKey. While one of them is in such a state, no
// other one starts. PAUSED counts: the job has begun, and continues when its children are over.
func sequenceHolders() []State { return []State{Queued, RunQueued, Running, Paused} }

// sequenceTaken reports whether the sequence of a key has a current job, in a state of
// sequenceHolders. Call it with the sequence key locked. Returns errors of the store.
func (s *Service) sequenceTaken(ctx context.Context, t *txn.Step, key string) (bool, error) {
	id, err := firstOf(ctx, t.Tx, key, sequenceHolders()...)
	return id != 0, err
}

// firstOf returns the lowest id of the jobs of a sequence that are in one of these states. 0: no
// such job. It locks nothing. Returns errors of the store.
func firstOf(ctx context.Context, tx jobstore.Tx, key string, states ...State) (ID, error) {
	g := jobstore.Group{By: jobstore.BySequence, Key: key}
	found, err := tx.First(ctx, states, g)
	return found[g], err
}

// promote makes the oldest WAITING job of a sequence QUEUED, and saves it, if the sequence has no
// current job. It does nothing if key is "" or no job is WAITING. Call it with the sequence key
// locked. Returns ErrLocks, for another try, if a job with a higher id is locked already. Returns
// errors of the store.
func (s *Service) promote(ctx context.Context, t *txn.Step, key string) error {
	if key == "" {
		return nil
	}
	if held, err := s.sequenceTaken(ctx, t, key); held || err != nil {
		return err
	}
	next, err := firstOf(ctx, t.Tx, key, Waiting)
	if err != nil || next == 0 {
		return err
	}
	found, err := t.Jobs(ctx, next)
	if err != nil {
		return err
	}
	j := found[next] // the job exists and is WAITING, since the sequence is locked
	j.State = Queued
	return t.Save(ctx, j)
}

// enqueue sets the state of j to QUEUED, without saving j. A job that is WAITING or over becomes
// WAITING instead if its sequence has a current job. A job in any other state is the current job
// itself. Call it with the sequence key of j locked. Returns errors of the store; j is then
// unchanged.
func (s *Service) enqueue(ctx context.Context, t *txn.Step, j *Row) error {
	if j.SequenceKey == "" || j.State == Queued || j.State == RunQueued || j.State == Running || j.State == Paused {
		j.State = Queued
		return nil
	}
	held, err := s.sequenceTaken(ctx, t, j.SequenceKey)
	if err != nil {
		return err
	}
	j.State = Queued
	if held {
		j.State = Waiting
	}
	return nil
}
