package memresults

import (
	"bytes"
	"context"
	"time"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// valueKey returns the map key of a value. It begins with a tab, which is not allowed in a task id
// and does not begin the key of a claim.
func valueKey(key string) task.ID { return task.ID("\t" + key) }

// Value implements [resultstore.Swapper]: it returns a copy of the value of key, nil if the key is
// free. Returns ErrMalformed for an invalid key, ErrClosed after Close, and ctx's error if ctx has
// ended. It takes t.mu.
func (s *Store) Value(ctx context.Context, key string) (value []byte, err error) {
	err = s.withTable(ctx, key, 1, func(t *table) error {
		value = t.value(key)
		return nil
	})
	return value, err
}

// Swap implements [resultstore.Swapper]: it stores a copy of next if the value of key is old or
// next. It returns the value after the call. Returns ErrMalformed or ErrTooLarge for an invalid
// argument, ErrClosed after Close, and ctx's error if ctx has ended. It takes t.mu.
func (s *Store) Swap(ctx context.Context, key string, old, next []byte, ttl time.Duration) (now []byte, err error) {
	if err := resultstore.CheckSwap(key, old, next, ttl); err != nil {
		return nil, err
	}
	err = s.withTable(ctx, key, ttl, func(t *table) error {
		at := t.now()
		t.gathering.sweep(at)
		if now = t.value(key); resultstore.MaySwap(now, old, next) {
			t.gathering.begun[valueKey(key)] = begun{string(next), deadline(at, ttl)}
			now = bytes.Clone(next)
		}
		return nil
	})
	return now, err
}

// value returns a copy of the value of key, nil if the key is free. Call it with t.mu held.
func (t *table) value(key string) []byte {
	if b, there := t.gathering.begun[valueKey(key)]; there && b.expires > t.now() {
		return []byte(b.which)
	}
	return nil
}

var _ resultstore.Swapper = (*Store)(nil)
