package jobs

import (
	"context"

	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// holding are the states of the job whose turn it is among those of a sequence key. PAUSED is one of them: a job that waits for its children has begun, and
// would have to run beside the next one when they are done.
func holding() []State { return []State{Queued, RunQueued, Running, Paused} }

// held tells whether a job of the key has the turn.
func (s *Service) held(ctx context.Context, t *txn.Step, key string) (bool, error) {
	found, err := t.Tx.OfSequence(ctx, key, jobstore.Page{States: holding(), Limit: 1})
	return len(found) > 0, err
}

// promote gives the turn to the oldest of those that wait, if nobody has it.
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
	found[0].State = Queued
	return t.Save(ctx, &found[0])
}

// queue makes j QUEUED, or WAITING if it has not the turn and another job has.
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
