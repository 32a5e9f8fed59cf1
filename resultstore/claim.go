package resultstore

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/capability"
)

// Limits of a [Claimer].
const (
	MaxClaimText = 512                        // bytes of a key, and of a holder
	MaxClaimTTL  = 100 * 365 * 24 * time.Hour // the longest time of a claim
)

// Claimer is a store that gives a key to one holder at a time. It is optional for a store.
//
//   - A key and a holder are any text of 1 to [MaxClaimText] bytes; they need not be UTF-8.
//   - A ttl is above 0 and at most [MaxClaimTTL].
//   - Anything else is refused with [ErrMalformed], and changes nothing.
//   - A claim lasts for its ttl at least, by the store's clock. When it has ended nobody has the
//     key.
//   - Keys of a Claimer are apart from ids of tasks and groups.
//
// Each method is one atomic step and safe for concurrent use. After [ErrUnavailable], or an error
// of ctx, the step may have been taken. Repeating it with the same arguments is safe.
type Claimer interface {
	// Claim gives key to holder for ttl if nobody has it, and returns the holder that has it then.
	// A winner equal to holder means: granted, now or earlier. A repeated Claim does not change the
	// time of a claim.
	Claim(ctx context.Context, key, holder string, ttl time.Duration) (winner string, err error)
	// Extend keeps key with holder for ttl from now on, also if that is less than what was left.
	// Returns [ErrStale] if another holder or nobody has key.
	Extend(ctx context.Context, key, holder string, ttl time.Duration) error
	// Pass gives key from holder to next, for ttl from now on. It does the same if next has key
	// already, so that it can be repeated. Returns [ErrStale] if another holder or nobody has key.
	Pass(ctx context.Context, key, holder, next string, ttl time.Duration) error
	// Release ends the claim of holder. It does nothing if another holder or nobody has key.
	Release(ctx context.Context, key, holder string) error
}

// ClaimerOf returns explicit if it is not nil, else the Claimer that s is or wraps, else nil.
func ClaimerOf(explicit Claimer, s ResultStore) Claimer {
	if explicit != nil {
		return explicit
	}
	c, _ := capability.As[Claimer](s)
	return c
}

// CheckClaim returns the first reason why a store must not take a claim of key for ttl, or nil.
func CheckClaim(key string, ttl time.Duration, holders ...string) error {
	if len(key) == 0 || len(key) > MaxClaimText {
		return fmt.Errorf("%w: a claim's key of %d bytes, 1 to %d are possible", ErrMalformed, len(key), MaxClaimText)
	}
	for _, h := range holders {
		if len(h) == 0 || len(h) > MaxClaimText {
			return fmt.Errorf("%w: a claim's holder of %d bytes, 1 to %d are possible", ErrMalformed, len(h), MaxClaimText)
		}
	}
	if ttl <= 0 || ttl > MaxClaimTTL {
		return fmt.Errorf("%w: a claim's time of %v, above 0 and up to %v are possible", ErrMalformed, ttl, MaxClaimTTL)
	}
	return nil
}

// RoundClaim returns how long a server keeps a claim or a record if its clock counts milliseconds.
// It is ttl rounded up, and one more, since the first millisecond has begun already.
func RoundClaim(ttl time.Duration) time.Duration {
	return (ttl + time.Millisecond - 1).Truncate(time.Millisecond) + time.Millisecond
}
