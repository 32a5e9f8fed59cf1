package memresults

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// claimKey begins with a space, which no id does: claims are kept beside the copies of tasks that
// run.
func claimKey(key string) task.ID { return task.ID(" " + key) }

// claim gives key to which if nobody has it, and returns the one that has it then. t.mu is held.
func (t *table) claim(key task.ID, which string, ttl time.Duration) string {
	now := t.now()
	g := &t.gathering
	g.sweep(now)
	if b, there := g.begun[key]; there && b.expires > now {
		return b.which
	}
	g.begun[key] = begun{which, deadline(now, ttl)}
	return which
}

// Claim implements [resultstore.Claimer].
func (s *Store) Claim(ctx context.Context, key, holder string, ttl time.Duration) (string, error) {
	var winner string
	err := s.claiming(ctx, key, ttl, func(t *table) error {
		winner = t.claim(claimKey(key), holder, ttl)
		return nil
	}, holder)
	return winner, err
}

// Extend implements [resultstore.Claimer].
func (s *Store) Extend(ctx context.Context, key, holder string, ttl time.Duration) error {
	return s.Pass(ctx, key, holder, holder, ttl)
}

// Pass implements [resultstore.Claimer].
func (s *Store) Pass(ctx context.Context, key, holder, next string, ttl time.Duration) error {
	return s.claiming(ctx, key, ttl, func(t *table) error {
		now := t.now()
		b, there := t.gathering.begun[claimKey(key)]
		if !there || b.expires <= now || b.which != holder && b.which != next {
			return resultstore.ErrStale
		}
		t.gathering.begun[claimKey(key)] = begun{next, deadline(now, ttl)}
		return nil
	}, holder, next)
}

// Release implements [resultstore.Claimer].
func (s *Store) Release(ctx context.Context, key, holder string) error {
	return s.claiming(ctx, key, 1, func(t *table) error {
		if t.gathering.begun[claimKey(key)].which == holder {
			delete(t.gathering.begun, claimKey(key))
		}
		return nil
	}, holder)
}

// claiming calls fn with the table, for a claim that is none of the malformed.
func (s *Store) claiming(ctx context.Context, key string, ttl time.Duration, fn func(*table) error, holders ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := resultstore.CheckClaim(key, ttl, holders...); err != nil {
		return err
	}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.closed {
		return resultstore.ErrClosed
	}
	return fn(s.t)
}

var _ resultstore.Claimer = (*Store)(nil)
