package natsresults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/resultstore"
)

// A claim is a message whose body is the holder, compared and set as a group's state is.

func claimKey(key string) string { return " c" + key }

// Claim implements [resultstore.Claimer]: one trip to the server for the first holder, two for any
// other.
func (s *Store) Claim(ctx context.Context, key, holder string, ttl time.Duration) (string, error) {
	var winner string
	err := s.claiming(ctx, "claim", key, ttl, func(st *stream) (err error) {
		winner, err = s.claim(ctx, st, claimKey(key), holder, resultstore.RoundClaim(ttl))
		return err
	}, holder)
	if err != nil {
		return "", err
	}
	return winner, nil
}

// claim gives the key to holder if nobody has it, and returns the holder that has it then.
func (s *Store) claim(ctx context.Context, st *stream, key, holder string, ttl time.Duration) (string, error) {
	there, err := s.setFirst(ctx, st, key, []byte(holder), ttl)
	if there != nil {
		return string(there), err
	}
	return holder, err
}

// Extend implements [resultstore.Claimer]: two trips to the server.
func (s *Store) Extend(ctx context.Context, key, holder string, ttl time.Duration) error {
	return s.Pass(ctx, key, holder, holder, ttl)
}

// Pass implements [resultstore.Claimer]: two trips to the server.
func (s *Store) Pass(ctx context.Context, key, holder, next string, ttl time.Duration) error {
	return s.claiming(ctx, "pass a claim", key, ttl, func(st *stream) error {
		for attempt := 0; ; attempt++ {
			there, seq, err := s.get(ctx, st, claimKey(key))
			if err != nil {
				return err
			}
			if has := string(there); there == nil || has != holder && has != next {
				return resultstore.ErrStale
			}
			err = s.set(ctx, st, claimKey(key), seq, []byte(next), resultstore.RoundClaim(ttl))
			if err == nil || !s.again(ctx, err) || !pause(ctx, attempt+1) {
				return err
			}
		}
	}, holder, next)
}

// Release implements [resultstore.Claimer]: two trips to the server. Of another holder's message
// the number is another one.
func (s *Store) Release(ctx context.Context, key, holder string) error {
	return s.claiming(ctx, "release a claim", key, 1, func(st *stream) error {
		there, seq, err := s.get(ctx, st, claimKey(key))
		if err != nil || string(there) != holder {
			return err
		}
		if err = s.conn.DeleteSeq(ctx, s.names.stream, seq); errors.Is(err, natsconn.ErrNotFound) {
			return nil
		}
		return err
	}, holder)
}

// claiming calls fn with the stream, for a claim that is none of the malformed.
func (s *Store) claiming(ctx context.Context, what, key string, ttl time.Duration, fn func(*stream) error, holders ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := resultstore.CheckClaim(key, ttl, holders...); err != nil {
		return err
	}
	if !s.begin() {
		return resultstore.ErrClosed
	}
	defer s.end()
	return failure(what, s.withStream(ctx, func(st *stream) error {
		if st.maxAge > 0 && ttl > st.maxAge {
			return fmt.Errorf("%w: a claim's time of %v, and the server keeps nothing longer than %v", resultstore.ErrMalformed, ttl, st.maxAge)
		}
		return fn(st)
	}))
}

var _ resultstore.Claimer = (*Store)(nil)
