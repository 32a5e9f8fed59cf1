package sqlresults

import (
	"context"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/resultstore"
)

// claimID is the id of a claim's row in swarmiji_result_begun: a space, which no task's id has, and
// the key in quotes, which makes any bytes a text that a database takes.
func claimID(key string) string { return " " + strconv.QuoteToASCII(key) }

// Claim implements [resultstore.Claimer].
func (s *Store) Claim(ctx context.Context, key, holder string, ttl time.Duration) (string, error) {
	if err := s.checkClaim(ctx, key, ttl, holder); err != nil {
		return "", err
	}
	return s.claim(ctx, "claim", claimID(key), holder, resultstore.RoundClaim(ttl).Microseconds())
}

// claim gives the row of an id to holder if nobody has it, and returns the holder that has it then.
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

// Extend implements [resultstore.Claimer].
func (s *Store) Extend(ctx context.Context, key, holder string, ttl time.Duration) error {
	return s.Pass(ctx, key, holder, holder, ttl)
}

// Pass implements [resultstore.Claimer].
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

// Release implements [resultstore.Claimer].
func (s *Store) Release(ctx context.Context, key, holder string) error {
	if err := s.checkClaim(ctx, key, 1, holder); err != nil {
		return err
	}
	return s.repeat(ctx, "release a claim", func() error {
		_, err := s.change(ctx, s.text.release, "", s.cfg.Namespace, claimID(key), []byte(holder))
		return err
	})
}

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
