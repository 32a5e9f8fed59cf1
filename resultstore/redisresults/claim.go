package redisresults

import (
	"context"
	_ "embed"
	"time"

	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/resultstore"
)

var (
	//go:embed claim.lua
	claimSource string
	//go:embed pass.lua
	passSource string
	//go:embed release.lua
	releaseSource string
)

// claimScripts are the steps of a Claimer. The first is also that of Begin.
type claimScripts struct{ claim, pass, release *redisconn.Script }

func newClaimScripts() claimScripts {
	return claimScripts{redisconn.NewScript(claimSource), redisconn.NewScript(passSource), redisconn.NewScript(releaseSource)}
}

// Claim implements [resultstore.Claimer].
func (s *Store) Claim(ctx context.Context, key, holder string, ttl time.Duration) (string, error) {
	if err := s.checkClaim(ctx, key, ttl, holder); err != nil {
		return "", err
	}
	return s.claim(ctx, "claim", s.names.claimed(key), holder, resultstore.RoundClaim(ttl).Milliseconds())
}

// claim gives the key to holder if nobody has it, and returns the holder that has it then.
func (s *Store) claim(ctx context.Context, what, key, holder string, ms int64) (string, error) {
	answer, err := s.untilAnswered(ctx, func() (any, error) {
		return s.conn.Eval(ctx, s.claims.claim, []string{key}, holder, ms)
	})
	if err != nil {
		return "", failure(what, err)
	}
	winner, ok := answer.(string)
	if !ok {
		return "", failure(what, errAnswer)
	}
	return winner, nil
}

// Extend implements [resultstore.Claimer].
func (s *Store) Extend(ctx context.Context, key, holder string, ttl time.Duration) error {
	return s.Pass(ctx, key, holder, holder, ttl)
}

// Pass implements [resultstore.Claimer].
func (s *Store) Pass(ctx context.Context, key, holder, next string, ttl time.Duration) error {
	if err := s.checkClaim(ctx, key, ttl, holder, next); err != nil {
		return err
	}
	answer, err := s.untilAnswered(ctx, func() (any, error) {
		return s.conn.Eval(ctx, s.claims.pass, []string{s.names.claimed(key)}, holder, next, resultstore.RoundClaim(ttl).Milliseconds())
	})
	switch {
	case err != nil:
	case answer == int64(0):
		err = resultstore.ErrStale
	case answer != int64(1):
		err = errAnswer
	}
	return failure("pass a claim", err)
}

// Release implements [resultstore.Claimer].
func (s *Store) Release(ctx context.Context, key, holder string) error {
	if err := s.checkClaim(ctx, key, 1, holder); err != nil {
		return err
	}
	_, err := s.untilAnswered(ctx, func() (any, error) {
		return s.conn.Eval(ctx, s.claims.release, []string{s.names.claimed(key)}, holder)
	})
	return failure("release a claim", err)
}

func (s *Store) checkClaim(ctx context.Context, key string, ttl time.Duration, holders ...string) error {
	if s.closed.Load() {
		return resultstore.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return resultstore.CheckClaim(key, ttl, holders...)
}

var _ resultstore.Claimer = (*Store)(nil)
