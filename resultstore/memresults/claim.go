package memresults

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// claimKey returns the map key of a claim. It begins with a space, which is not allowed in a task
// id, because claims share a map with begun tasks.
func claimKey(key string) task.ID { return task.ID(" " + key) }

// claim claims key for which until ttl has passed, if the key has no unexpired claim. It returns
// the holder of the claim after the call, and does not extend an existing claim. It first removes
// expired claims and groups if that is due (sweep). Call it with t.mu held.
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

// Claim implements [resultstore.Claimer]: it claims key for holder for the time ttl if the key has
// no unexpired claim. It returns the holder that has the claim then. An existing claim is not
// extended. Returns ErrMalformed for an invalid argument, ErrClosed after Close, and ctx's error if
// ctx has ended. It takes t.mu.
func (s *Store) Claim(ctx context.Context, key, holder string, ttl time.Duration) (string, error) {
	var winner string
	err := s.withTable(ctx, key, ttl, func(t *table) error {
		winner = t.claim(claimKey(key), holder, ttl)
		return nil
	}, holder)
	return winner, err
}

// Extend implements [resultstore.Claimer]: it makes the claim of holder end after ttl from now, by
// calling Pass with holder as next. Returns ErrStale if holder does not have the claim, and the
// other errors of Pass. It takes t.mu.
func (s *Store) Extend(ctx context.Context, key, holder string, ttl time.Duration) error {
	return s.Pass(ctx, key, holder, holder, ttl)
}

// Pass implements [resultstore.Claimer]: it gives the claim of key to next until ttl from now, if
// holder or next has it. Returns ErrStale if neither has it, also if the claim has expired. Returns
// ErrMalformed for an invalid argument, ErrClosed after Close, and ctx's error if ctx has ended. It
// takes t.mu.
func (s *Store) Pass(ctx context.Context, key, holder, next string, ttl time.Duration) error {
	return s.withTable(ctx, key, ttl, func(t *table) error {
		now := t.now()
		b, there := t.gathering.begun[claimKey(key)]
		if !there || b.expires <= now || b.which != holder && b.which != next {
			return resultstore.ErrStale
		}
		t.gathering.begun[claimKey(key)] = begun{next, deadline(now, ttl)}
		return nil
	}, holder, next)
}

// Release implements [resultstore.Claimer]: it deletes the claim of key if holder has it. Otherwise
// it changes nothing and returns nil. Returns ErrMalformed for an invalid argument, ErrClosed after
// Close, and ctx's error if ctx has ended. It takes t.mu.
func (s *Store) Release(ctx context.Context, key, holder string) error {
	return s.withTable(ctx, key, 1, func(t *table) error {
		if t.gathering.begun[claimKey(key)].which == holder {
			delete(t.gathering.begun, claimKey(key))
		}
		return nil
	}, holder)
}

// withTable checks the arguments of a claim and calls fn with t.mu held. It returns ctx's error,
// ErrMalformed, ErrClosed or the error of fn.
func (s *Store) withTable(ctx context.Context, key string, ttl time.Duration, fn func(*table) error, holders ...string) error {
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
