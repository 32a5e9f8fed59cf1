package resultstore

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/capability"
)

// Limits of the arguments of a [Claimer].
const (
	MaxClaimText = 512                        // the longest key and the longest holder, in bytes
	MaxClaimTTL  = 100 * 365 * 24 * time.Hour // the longest ttl
)

// Claimer is a store that lets one holder at a time claim a key. A store need not implement it.
//
//   - A key and a holder are any text of 1 to [MaxClaimText] bytes. They need not be UTF-8.
//   - A ttl is above 0 and at most [MaxClaimTTL].
//   - Any other argument is refused with [ErrMalformed] and changes nothing.
//   - A claim lasts at least for its ttl, measured by the store's clock. After that the key is
//     free.
//   - Keys of claims never collide with ids of tasks and groups.
//
// Each method is one atomic step and safe for concurrent use. After [ErrUnavailable] or an error of
// ctx the store may have executed the step. Repeating the call with the same arguments is safe.
type Claimer interface {
	// Claim claims key for holder until ttl has passed, if the key is free. It returns the holder of
	// the claim after the call. The claim was granted, by this call or an earlier one, if winner
	// equals holder. A repeated Claim does not change when the claim ends.
	Claim(ctx context.Context, key, holder string, ttl time.Duration) (winner string, err error)
	// Extend makes the claim of holder end after ttl from now, which may be earlier than before.
	// Returns [ErrStale] if holder does not have the claim of key.
	Extend(ctx context.Context, key, holder string, ttl time.Duration) error
	// Pass moves the claim of key from holder to next and makes it end after ttl from now. It does the
	// same if next has the claim already, so Pass may be repeated. Returns [ErrStale] if neither
	// holder nor next has the claim.
	Pass(ctx context.Context, key, holder, next string, ttl time.Duration) error
	// Release ends the claim of key if holder has it. Otherwise it changes nothing and returns nil.
	Release(ctx context.Context, key, holder string) error
}

// ClaimerOf returns explicit if it is not nil. Otherwise it returns the Claimer that s is or wraps,
// or nil if s is not a Claimer.
func ClaimerOf(explicit Claimer, s ResultStore) Claimer {
	if explicit != nil {
		return explicit
	}
	c, _ := capability.As[Claimer](s)
	return c
}

// CheckClaim returns nil if a store may accept a claim of key by these holders for ttl. Otherwise
// it returns [ErrMalformed] with the first reason.
func CheckClaim(key string, ttl time.Duration, holders ...string) error {
	if len(key) == 0 || len(key) > MaxClaimText {
		return fmt.Errorf("%w: the key of a claim has %d bytes, it must have 1 to %d", ErrMalformed, len(key), MaxClaimText)
	}
	for _, h := range holders {
		if len(h) == 0 || len(h) > MaxClaimText {
			return fmt.Errorf("%w: the holder of a claim has %d bytes, it must have 1 to %d", ErrMalformed, len(h), MaxClaimText)
		}
	}
	if ttl <= 0 || ttl > MaxClaimTTL {
		return fmt.Errorf("%w: the ttl of a claim is %v, it must be above 0 and at most %v", ErrMalformed, ttl, MaxClaimTTL)
	}
	return nil
}

// RoundClaim returns the retention, in whole milliseconds, that a server must use so that a claim
// or record lasts at least ttl. That is ttl rounded up to milliseconds, plus one, because the
// current millisecond of the server's clock has already begun.
func RoundClaim(ttl time.Duration) time.Duration {
	return (ttl + time.Millisecond - 1).Truncate(time.Millisecond) + time.Millisecond
}
