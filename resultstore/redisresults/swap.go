package redisresults

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/resultstore"
)

// Value implements [resultstore.Swapper]: it returns the value of key, nil if the key is free.
// Returns ErrMalformed for an invalid key, ErrClosed after Close, and ctx's error if ctx has
// already ended. While the outcome is unknown it repeats the call, until ctx ends; then it returns
// ErrUnavailable.
func (s *Store) Value(ctx context.Context, key string) ([]byte, error) {
	if err := s.checkClaim(ctx, key, 1); err != nil {
		return nil, err
	}
	answer, err := s.untilAnswered(ctx, func() (any, error) { return s.conn.Do(ctx, "GET", s.names.valued(key)) })
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	value, ok := answer.(string)
	if err == nil && !ok {
		err = errAnswer
	}
	if err != nil {
		return nil, failure("read a value", err)
	}
	return []byte(value), nil
}

// Swap implements [resultstore.Swapper]: it stores next if the value of key is old or next, and
// returns the value after the call. It makes one round trip.
//
// Returns ErrMalformed or ErrTooLarge for an invalid argument, ErrClosed after Close, and ctx's
// error if ctx has already ended. While the outcome of its script is unknown it repeats the call,
// until ctx ends; then it returns ErrUnavailable.
func (s *Store) Swap(ctx context.Context, key string, old, next []byte, ttl time.Duration) ([]byte, error) {
	if err := s.checkClaim(ctx, key, ttl); err != nil {
		return nil, err
	}
	if err := resultstore.CheckSwap(key, old, next, ttl); err != nil {
		return nil, err
	}
	answer, err := s.untilAnswered(ctx, func() (any, error) {
		return s.conn.Eval(ctx, s.claims.swap, []string{s.names.valued(key)}, old, next, resultstore.RoundClaim(ttl).Milliseconds())
	})
	if err != nil {
		return nil, failure("swap a value", err)
	}
	switch there, other := answer.(string); {
	case answer == int64(1):
		return bytes.Clone(next), nil
	case !other:
		return nil, failure("swap a value", errAnswer)
	case there == "":
		return nil, nil
	default:
		return []byte(there), nil
	}
}

var _ resultstore.Swapper = (*Store)(nil)
