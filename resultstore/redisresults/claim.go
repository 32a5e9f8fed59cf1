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
	//go:embed swap.lua
	swapSource string
)

// claimScripts holds the scripts of a Claimer and of a Swapper. Begin uses the script claim, too.
type claimScripts struct{ claim, pass, release, swap *redisconn.Script }

// newClaimScripts returns the scripts of the embedded files. It sends nothing to the server.
func newClaimScripts() claimScripts {
	return claimScripts{redisconn.NewScript(claimSource), redisconn.NewScript(passSource), redisconn.NewScript(releaseSource), redisconn.NewScript(swapSource)}
}

// Claim implements [resultstore.Claimer]: it claims key for holder for the time ttl if the key has
// no unexpired claim. It returns the holder that has the claim then. An existing claim is not
// extended. Returns ErrMalformed for an invalid argument, ErrClosed after Close, and ctx's error if
// ctx has already ended. While the outcome of its script is unknown it repeats the call, until ctx
// ends; then it returns ErrUnavailable.
func (s *Store) Claim(ctx context.Context, key, holder string, ttl time.Duration) (string, error) {
	if err := s.checkClaim(ctx, key, ttl, holder); err != nil {
		return "", err
	}
	return s.claim(ctx, "claim", s.names.claimed(key), holder, resultstore.RoundClaim(ttl).Milliseconds())
}

// claim sets the Redis key to holder for ms milliseconds if it does not exist. It returns the
// holder that the key names then. It repeats the call while the outcome is unknown, until ctx ends.
// It returns the errors of failure, for example ErrUnavailable. The argument what names the
// operation in them.
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

// Extend implements [resultstore.Claimer]: it makes the claim of holder end after ttl from now, by
// calling Pass with holder as next. Returns ErrStale if holder does not have the claim, and the
// other errors of Pass.
func (s *Store) Extend(ctx context.Context, key, holder string, ttl time.Duration) error {
	return s.Pass(ctx, key, holder, holder, ttl)
}

// Pass implements [resultstore.Claimer]: it gives the claim of key to next until ttl from now, if
// holder or next has it. Returns ErrStale if neither has it, ErrMalformed for an invalid argument,
// ErrClosed after Close, and ctx's error if ctx has already ended. While the outcome of its script
// is unknown it repeats the call, until ctx ends; then it returns ErrUnavailable.
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

// Release implements [resultstore.Claimer]: it deletes the claim of key if holder has it. Otherwise
// it changes nothing and returns nil. Returns ErrMalformed for an invalid argument, ErrClosed after
// Close, and ctx's error if ctx has already ended. While the outcome of its script is unknown it
// repeats the call, until ctx ends; then it returns ErrUnavailable.
func (s *Store) Release(ctx context.Context, key, holder string) error {
	if err := s.checkClaim(ctx, key, 1, holder); err != nil {
		return err
	}
	_, err := s.untilAnswered(ctx, func() (any, error) {
		return s.conn.Eval(ctx, s.claims.release, []string{s.names.claimed(key)}, holder)
	})
	return failure("release a claim", err)
}

// checkClaim returns ErrClosed after Close, ctx's error if ctx has ended, or ErrMalformed for an
// invalid argument of a claim.
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
