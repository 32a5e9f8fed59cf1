package natsresults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/resultstore"
)

// valueKey returns the key of the message that holds a value. The space keeps it apart from task
// ids.
func valueKey(key string) string { return " v" + key }

// longestSwap is the retention of a stream that is long enough for each value of a burst. A shorter
// one would refuse some values of a key and accept others.
const longestSwap = 16 * 24 * time.Hour

// Value implements [resultstore.Swapper]: it returns the value of key, nil if the key is free. It
// makes one round trip. Returns ErrMalformed for an invalid key and the errors of Swap.
func (s *Store) Value(ctx context.Context, key string) (value []byte, err error) {
	err = s.withClaim(ctx, "read a value", key, 1, func(st *stream) (err error) {
		value, _, err = s.get(ctx, st, valueKey(key))
		return err
	})
	return value, err
}

// Swap implements [resultstore.Swapper]: it stores next if the value of key is old or next, and
// returns the value after the call. It makes one round trip for a free key and two for any other.
// After a conflict or a lost answer it reads the value and tries again until ctx ends; then it
// returns ErrUnavailable. It also returns:
//
//   - ErrUnsupported if the stream keeps messages for less than 16 days, as before NATS 2.11
//   - ErrMalformed for an invalid argument or a ttl above the stream's own limit
//   - ErrTooLarge for a value above the limit of the port or the server
//   - ErrClosed after Close, and ctx's error if ctx has already ended
func (s *Store) Swap(ctx context.Context, key string, old, next []byte, ttl time.Duration) (now []byte, err error) {
	if err := resultstore.CheckSwap(key, old, next, ttl); err != nil {
		return nil, err
	}
	kept := resultstore.RoundClaim(ttl)
	err = s.withClaim(ctx, "swap a value", key, ttl, func(st *stream) (err error) {
		if st.maxAge > 0 && st.maxAge < longestSwap {
			return fmt.Errorf("%w: values need NATS 2.11, or a stream that keeps messages for %v; it keeps them for %v", resultstore.ErrUnsupported, longestSwap, st.maxAge)
		}
		if len(old) == 0 {
			var there string
			there, err = s.claim(ctx, st, valueKey(key), string(next), kept)
			now = []byte(there)
			return err
		}
		for attempt := 0; ; attempt++ {
			var seq uint64
			if now, seq, err = s.get(ctx, st, valueKey(key)); err != nil || !resultstore.MaySwap(now, old, next) {
				return err
			}
			err = s.set(ctx, st, valueKey(key), seq, next, kept)
			switch {
			case err == nil:
				now = bytes.Clone(next)
				return nil
			case !s.retryable(ctx, err):
				return err
			case !pause(ctx, attempt+1):
				return errors.Join(natsconn.ErrUnavailable, err)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return now, nil
}

var _ resultstore.Swapper = (*Store)(nil)
