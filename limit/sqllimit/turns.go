package sqllimit

import (
	"context"
	"slices"
	"sync"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// turns lets one call of this process at a time wait for the lock of a key in PostgreSQL. A waiting
// transaction keeps a connection. Without turns, a key that another process has locked could use up
// all connections of the handle. The zero value is ready. Safe for concurrent use.
type turns struct {
	mu   sync.Mutex
	keys map[int64]*turn
}

// turn is the right to lock one key.
type turn struct {
	free  chan struct{} // has a value while no call has the turn
	calls int           // calls that have the turn or wait for it
}

// take waits until the caller has the turns of all keys, which must be in ascending order. end
// returns them. Returns sqlconn.ErrUnavailable if ctx ends first, and sqlconn.ErrClosed if
// closed is closed.
// It takes t.mu, but does not hold it while it waits.
func (t *turns) take(ctx context.Context, closed <-chan struct{}, keys []int64) (end func(), err error) {
	keys = slices.Compact(slices.Clone(keys))
	taken := 0
	end = func() {
		for _, k := range keys[:taken] {
			t.leave(k, true)
		}
	}
	for _, k := range keys {
		select {
		case <-t.join(k):
			taken++
			continue
		case <-ctx.Done():
			err = sqlconn.Ended(ctx, nil)
		case <-closed:
			err = sqlconn.Closed()
		}
		t.leave(k, false)
		end()
		return nil, err
	}
	return end, nil
}

// join adds a call to the turn of a key and returns the channel to receive the turn from. It takes
// t.mu.
func (t *turns) join(key int64) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.keys[key]
	if one == nil {
		one = &turn{free: make(chan struct{}, 1)}
		one.free <- struct{}{}
		if t.keys == nil {
			t.keys = make(map[int64]*turn)
		}
		t.keys[key] = one
	}
	one.calls++
	return one.free
}

// leave removes a call from the turn of a key, and returns the turn if the call has it. It takes
// t.mu.
func (t *turns) leave(key int64, has bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.keys[key]
	if has {
		one.free <- struct{}{}
	}
	if one.calls--; one.calls == 0 {
		delete(t.keys, key)
	}
}
