package natsresults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/resultstore"
)

// A claim is a message whose body is the holder. It is written with compare-and-set like the state
// of a group.

// claimKey returns the key of the message that holds a claim. The space keeps it apart from task
// ids.
func claimKey(key string) string { return " c" + key }

// Claim implements [resultstore.Claimer]: it claims key for holder for the time ttl if the key has
// no unexpired claim. It returns the holder that has the claim then. An existing claim is not
// extended. It makes one round trip for the first holder and two for any other.
//
// Returns ErrMalformed for an invalid argument or a ttl above the stream's own limit, ErrClosed
// after Close, and ctx's error if ctx has already ended. After a lost answer it tries again until
// ctx ends; then it returns ErrUnavailable.
func (s *Store) Claim(ctx context.Context, key, holder string, ttl time.Duration) (string, error) {
	var winner string
	err := s.withClaim(ctx, "claim", key, ttl, func(st *stream) (err error) {
		winner, err = s.claim(ctx, st, claimKey(key), holder, resultstore.RoundClaim(ttl))
		return err
	}, holder)
	if err != nil {
		return "", err
	}
	return winner, nil
}

// claim writes holder under key with retention ttl if key has no message. It returns the holder
// that the stored message names after that: holder, or another one that came first. It waits for
// the server and repeats a write without an answer, until ctx ends. After an error the returned
// holder has no meaning.
func (s *Store) claim(ctx context.Context, st *stream, key, holder string, ttl time.Duration) (string, error) {
	there, err := s.setFirst(ctx, st, key, []byte(holder), ttl)
	if there != nil {
		return string(there), err
	}
	return holder, err
}

// Extend implements [resultstore.Claimer]: it makes the claim of holder end after ttl from now, by
// calling Pass with holder as next. Returns ErrStale if holder does not have the claim, and the
// other errors of Pass. It makes two round trips.
func (s *Store) Extend(ctx context.Context, key, holder string, ttl time.Duration) error {
	return s.Pass(ctx, key, holder, holder, ttl)
}

// Pass implements [resultstore.Claimer]: it gives the claim of key to next until ttl from now, if
// holder or next has it. It makes two round trips. After a conflict or a lost answer it reads the
// claim and tries again until ctx ends; then it returns ErrUnavailable. It also returns:
//
//   - ErrStale if neither holder nor next has the claim
//   - ErrMalformed for an invalid argument or a ttl above the stream's own limit
//   - ErrClosed after Close, and ctx's error if ctx has already ended
func (s *Store) Pass(ctx context.Context, key, holder, next string, ttl time.Duration) error {
	return s.withClaim(ctx, "pass a claim", key, ttl, func(st *stream) error {
		for attempt := 0; ; attempt++ {
			there, seq, err := s.get(ctx, st, claimKey(key))
			if err != nil {
				return err
			}
			if has := string(there); there == nil || has != holder && has != next {
				return resultstore.ErrStale
			}
			err = s.set(ctx, st, claimKey(key), seq, []byte(next), resultstore.RoundClaim(ttl))
			if err == nil || !s.retryable(ctx, err) || !pause(ctx, attempt+1) {
				return err
			}
		}
	}, holder, next)
}

// Release implements [resultstore.Claimer]: it deletes the claim of key if holder has it. Otherwise
// it changes nothing and returns nil. Returns ErrMalformed for an invalid argument and ErrClosed
// after Close. After a lost answer it tries again until ctx ends; then it returns ErrUnavailable.
// It makes two round trips. It deletes the message by its sequence, so a claim that another holder
// makes meanwhile stays.
func (s *Store) Release(ctx context.Context, key, holder string) error {
	return s.withClaim(ctx, "release a claim", key, 1, func(st *stream) error {
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

// withClaim checks the arguments of a claim and calls fn with the stream; withStream says when fn
// is repeated. Returns ErrMalformed if an argument is invalid or ttl exceeds the server's
// retention. Returns ErrClosed after Close, ctx's error if ctx has ended, and the error of fn. The
// argument what names the operation in errors.
func (s *Store) withClaim(ctx context.Context, what, key string, ttl time.Duration, fn func(*stream) error, holders ...string) error {
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
			return fmt.Errorf("%w: the ttl of a claim is %v, but the stream keeps messages for at most %v", resultstore.ErrMalformed, ttl, st.maxAge)
		}
		return fn(st)
	}))
}

var _ resultstore.Claimer = (*Store)(nil)
