package jobs

import (
	"context"

	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// holding is the states of the job that has the turn of its sequence key. A PAUSED job keeps it: it
// has begun, and would run beside the next one when its children are done.
func holding() []State { return []State{Queued, RunQueued, Running, Paused} }

// held reports whether a job of the key has the turn.
func (s *Service) held(ctx context.Context, t *txn.Step, key string) (bool, error) {
	found, err := t.Tx.OfSequence(ctx, key, jobstore.Page{States: holding(), Limit: 1})
	return len(found) > 0, err
}

// promote gives the turn to the oldest waiting job, if no job has it.
func (s *Service) promote(ctx context.Context, t *txn.Step, key string) error {
	if key == "" {
		return nil
	}
	if held, err := s.held(ctx, t, key); held || err != nil {
		return err
	}
	found, err := t.Tx.OfSequence(ctx, key, jobstore.Page{States: []State{Waiting}, Limit: 1})
	if err != nil || len(found) == 0 {
		return err
	}
	j, err := t.Tx.Get(ctx, found[0].ID) // it is WAITING still: the key is locked
	if err != nil {
		return err
	}
	j.State = Queued
	return t.Save(ctx, &j)
}

// queue makes j QUEUED, or WAITING if another job has the turn.
func (s *Service) queue(ctx context.Context, t *txn.Step, j *Row) error {
	if j.SequenceKey == "" || j.State == Queued || j.State == RunQueued || j.State == Running || j.State == Paused {
		j.State = Queued
		return nil
	}
	held, err := s.held(ctx, t, j.SequenceKey)
	if err != nil {
		return err
	}
	j.State = Queued
	if held {
		j.State = Waiting
	}
	return nil
}
