package sqlresults

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/resultstore"
)

// valueID returns the id of a value's row in swarmiji_result_begun. It begins with a space, which
// is not allowed in a task id. The letter keeps it apart from the ids of claims.
func valueID(key string) string { return " v" + strconv.QuoteToASCII(key) }

// Value implements [resultstore.Swapper]: it returns the value of key, nil if the key is free.
// Returns ErrMalformed for an invalid key, ErrClosed after Close, and ctx's error if ctx has
// already ended. While the outcome is unknown it repeats the call, until ctx ends; then it returns
// ErrUnavailable.
func (s *Store) Value(ctx context.Context, key string) (value []byte, err error) {
	if err := s.checkClaim(ctx, key, 1); err != nil {
		return nil, err
	}
	err = s.repeat(ctx, "read a value", func() (err error) {
		value, err = s.readValue(ctx, key)
		return err
	})
	return value, err
}

// readValue reads the value of key once, nil if the key is free. It waits for the database and
// returns its errors.
func (s *Store) readValue(ctx context.Context, key string) (value []byte, err error) {
	err = s.conn.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		err := tx.Row(ctx, s.text.value, s.cfg.Namespace, valueID(key)).Scan(&value)
		if errors.Is(err, sqlconn.ErrNoRows) {
			value, err = nil, nil
		}
		return err
	})
	return value, err
}

// Swap implements [resultstore.Swapper]: it stores next if the value of key is old or next, and
// returns the value after the call. It runs one statement, and another one to read the value that
// stayed. It may start a sweep of expired rows on a goroutine.
//
// Returns ErrMalformed or ErrTooLarge for an invalid argument, ErrClosed after Close, and ctx's
// error if ctx has already ended. While the outcome is unknown it repeats the call, until ctx ends;
// then it returns ErrUnavailable.
func (s *Store) Swap(ctx context.Context, key string, old, next []byte, ttl time.Duration) (now []byte, err error) {
	if err := s.checkClaim(ctx, key, ttl); err != nil {
		return nil, err
	}
	if err := resultstore.CheckSwap(key, old, next, ttl); err != nil {
		return nil, err
	}
	us := resultstore.RoundClaim(ttl).Microseconds()
	if len(old) == 0 {
		there, err := s.claim(ctx, "store a value", valueID(key), string(next), us)
		if err != nil {
			return nil, err
		}
		return []byte(there), nil
	}
	err = s.repeat(ctx, "swap a value", func() error {
		swapped, err := s.change(ctx, s.text.pass, "", s.cfg.Namespace, valueID(key), old, next, us)
		switch {
		case err != nil:
			return err
		case swapped:
			now = bytes.Clone(next)
			return nil
		}
		now, err = s.readValue(ctx, key)
		return err
	})
	return now, err
}

var _ resultstore.Swapper = (*Store)(nil)
