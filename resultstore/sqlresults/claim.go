package sqlresults

import (
	"context"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/resultstore"
)

// claimID returns the id of a claim's row in swarmiji_result_begun. It begins with a space, which
// is not allowed in a task id. The key is quoted, because a database accepts only valid text.
func claimID(key string) string { return " " + strconv.QuoteToASCII(key) }

// Claim implements [resultstore.Claimer]: it claims key for holder for the time ttl if the key has
// no unexpired claim. It returns the holder that has the claim then. An existing claim is not
// extended. It may start a sweep of expired rows on a goroutine. Returns ErrMalformed for an
// invalid argument, ErrClosed after Close, and ctx's error if ctx has already ended. While the
// outcome is unknown it repeats the call, until ctx ends; then it returns ErrUnavailable.
func (s *Store) Claim(ctx context.Context, key, holder string, ttl time.Duration) (string, error) {
	if err := s.checkClaim(ctx, key, ttl, holder); err != nil {
		return "", err
	}
	return s.claim(ctx, "claim", claimID(key), holder, resultstore.RoundClaim(ttl).Microseconds())
}

// claim sets the row of an id to holder for us microseconds if the row does not exist or has
// expired. It returns the holder in the row then. It waits for the database, and returns its errors
// as repeat does; the argument what names the operation in them. It may start a sweep.
func (s *Store) claim(ctx context.Context, what, id, holder string, us int64) (string, error) {
	defer s.sweepSoon()
	var winner []byte
	err := s.repeat(ctx, what, func() error {
		return s.conn.Single(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			return tx.Row(ctx, s.text.claim, s.cfg.Namespace, id, []byte(holder), us).Scan(&winner)
		})
	})
	if err != nil {
		return "", err
	}
	return string(winner), nil
}

// Extend implements [resultstore.Claimer]: it makes the claim of holder end after ttl from now, by
// calling Pass with holder as next. Returns ErrStale if holder does not have the claim, and the
// other errors of Pass.
func (s *Store) Extend(ctx context.Context, key, holder string, ttl time.Duration) error {
	return s.Pass(ctx, key, holder, holder, ttl)
}

// Pass implements [resultstore.Claimer]: it gives the claim of key to next until ttl from now, if
// holder or next has it. Returns ErrStale if neither has it, also if the claim has expired. Returns
// ErrMalformed for an invalid argument, ErrClosed after Close, and ctx's error if ctx has already
// ended. While the outcome is unknown it repeats the call, until ctx ends; then it returns
// ErrUnavailable.
func (s *Store) Pass(ctx context.Context, key, holder, next string, ttl time.Duration) error {
	if err := s.checkClaim(ctx, key, ttl, holder, next); err != nil {
		return err
	}
	us := resultstore.RoundClaim(ttl).Microseconds()
	return s.repeat(ctx, "pass a claim", func() error {
		passed, err := s.change(ctx, s.text.pass, "", s.cfg.Namespace, claimID(key), []byte(holder), []byte(next), us)
		if err == nil && !passed {
			err = resultstore.ErrStale
		}
		return err
	})
}

// Release implements [resultstore.Claimer]: it deletes the claim of key if holder has it. Otherwise
// it changes nothing and returns nil. Returns ErrMalformed for an invalid argument, ErrClosed after
// Close, and ctx's error if ctx has already ended. While the outcome is unknown it repeats the
// call, until ctx ends; then it returns ErrUnavailable.
func (s *Store) Release(ctx context.Context, key, holder string) error {
	if err := s.checkClaim(ctx, key, 1, holder); err != nil {
		return err
	}
	return s.repeat(ctx, "release a claim", func() error {
		_, err := s.change(ctx, s.text.release, "", s.cfg.Namespace, claimID(key), []byte(holder))
		return err
	})
}

// checkClaim returns ErrClosed after Close, ctx's error if ctx has ended, or ErrMalformed for an
// invalid argument of a claim.
func (s *Store) checkClaim(ctx context.Context, key string, ttl time.Duration, holders ...string) error {
	if s.life.Err() != nil {
		return resultstore.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return resultstore.CheckClaim(key, ttl, holders...)
}

var _ resultstore.Claimer = (*Store)(nil)
