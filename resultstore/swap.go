package resultstore

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/capability"
)

// MaxSwapBytes limits a value of a [Swapper].
const MaxSwapBytes = 768 << 10

// Swapper is a store that keeps values under keys, and replaces a value if the caller knows it.
// Bursts use it ([task.WithDebounce], [task.WithLatest]). A store need not implement it.
//
//   - A key is any text of 1 to [MaxClaimText] bytes. It need not be UTF-8.
//   - A new value has 1 to [MaxSwapBytes] bytes. A known value has at most as many.
//   - A ttl is above 0 and at most [MaxClaimTTL].
//   - Any other argument is refused with [ErrMalformed], a value that is too long with
//     [ErrTooLarge]. Both change nothing.
//   - A value stays at least for its ttl, measured by the store's clock. Then the key is free.
//   - Keys of values never collide with keys of claims and ids of tasks and groups.
//
// Each method is one atomic step and safe for concurrent use. After [ErrUnavailable] or an error of
// ctx the store may have executed the step. A store keeps no reference to a value, and a returned
// value belongs to the caller.
type Swapper interface {
	// Value returns the value of key, nil if the key is free.
	Value(ctx context.Context, key string) ([]byte, error)
	// Swap stores next under key until ttl has passed, if the value of key is old or next. An empty
	// old means that the key is free. It returns the value of key after the call: next, or the
	// other value that stayed, or nil if the key is free and old is not empty.
	//
	// If callers never store a value twice, Swap may be repeated: equal to next means that this
	// call or an earlier one has stored it.
	Swap(ctx context.Context, key string, old, next []byte, ttl time.Duration) (now []byte, err error)
}

// SwapperOf returns explicit if it is not nil. Otherwise it returns the Swapper that s is or wraps,
// or nil if s is not a Swapper.
func SwapperOf(explicit Swapper, s ResultStore) Swapper {
	if explicit != nil {
		return explicit
	}
	w, _ := capability.As[Swapper](s)
	return w
}

// CheckSwap returns nil if a store may accept these arguments of Swap. Otherwise it returns
// [ErrMalformed] or [ErrTooLarge] with the first reason.
func CheckSwap(key string, old, next []byte, ttl time.Duration) error {
	if err := CheckClaim(key, ttl); err != nil {
		return err
	}
	if n := max(len(old), len(next)); n > MaxSwapBytes {
		return fmt.Errorf("%w: a value has %d bytes, at most %d are kept", ErrTooLarge, n, MaxSwapBytes)
	}
	if len(next) == 0 {
		return fmt.Errorf("%w: the next value of a key is empty", ErrMalformed)
	}
	return nil
}

// MaySwap reports whether Swap stores next in place of there, the value of the key now. It is for
// authors of stores.
func MaySwap(there, old, next []byte) bool {
	return bytes.Equal(there, old) || bytes.Equal(there, next)
}
