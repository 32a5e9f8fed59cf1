package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/naming"
)

// Bound limits the messages that consumers take. The zero value has no limit.
type Bound struct {
	// Max limits the messages that all consumers together hold, delivered and not settled. 0: no
	// limit.
	Max int
	// Rate limits the messages taken in each Per. A message that is delivered again counts again.
	//
	// After a pause Rate messages may be taken at once, then one after each Per/Rate. So any time of
	// the length Per has fewer than 2 * Rate. 0: no limit.
	Rate int
	// Per is the time of Rate. Default: 1 s. Per/Rate must not be below 1 µs.
	Per time.Duration
}

// interval returns the time between two messages of the rate, rounded up to a nanosecond.
func (b Bound) interval() time.Duration {
	rate := time.Duration(b.Rate)
	return (b.per() + rate - 1) / rate
}

// per returns Per or its default.
func (b Bound) per() time.Duration {
	if b.Per == 0 {
		return time.Second
	}
	return b.Per
}

// FreeAt returns the time from which Rate allows the next message. used is the result of the last
// Use, or zero. The result is zero if b has no Rate or used is zero. It is Rate-1 intervals of
// Per/Rate before used.
func (b Bound) FreeAt(used time.Time) time.Time {
	if b.Rate == 0 || used.IsZero() {
		return time.Time{}
	}
	return used.Add(-time.Duration(b.Rate-1) * b.interval())
}

// Use returns the time up to which Rate is used after a message was taken at the time now. used is
// the result of the last Use. From the returned time on nothing needs to be stored: used may be
// zero again. Without a Rate the result is used.
func (b Bound) Use(used, now time.Time) time.Time {
	if b.Rate == 0 {
		return used
	}
	if used.Before(now) {
		used = now
	}
	return used.Add(b.interval())
}

// check returns ErrMalformed if a field is negative or Per/Rate is below 1 µs.
func (b Bound) check() error {
	switch {
	case b.Max < 0 || b.Rate < 0 || b.Per < 0:
		return fmt.Errorf("%w: a bound of Max %d, Rate %d, Per %s has a negative part", ErrMalformed, b.Max, b.Rate, b.Per)
	case b.Rate > 0 && b.interval() < time.Microsecond:
		return fmt.Errorf("%w: a bound of %d in each %s is more than one in a microsecond", ErrMalformed, b.Rate, b.per())
	}
	return nil
}

// MaxBoundKeys is the largest number of Keys in [Bounds].
const MaxBoundKeys = 1000

// Bounds limit the messages of a fair queue where they are taken. A message is taken only if the
// Bound of its key and the Bound of the queue both allow it. The zero value has no limit.
type Bounds struct {
	Key  Bound            // of each fairness key, also of ""
	All  Bound            // of all messages of the queue
	Keys map[string]Bound // of single keys, in place of Key. At most MaxBoundKeys
}

// Of returns the Bound of a key.
func (b Bounds) Of(key string) Bound {
	if one, ok := b.Keys[key]; ok {
		return one
	}
	return b.Key
}

// IsZero reports whether b has no limit.
func (b Bounds) IsZero() bool {
	for _, one := range b.Keys {
		if one.limits() {
			return false
		}
	}
	return !b.Key.limits() && !b.All.limits()
}

// limits reports whether b has a limit.
func (b Bound) limits() bool { return b.Max > 0 || b.Rate > 0 }

// HasMax reports whether a Bound of b has a Max.
func (b Bounds) HasMax() bool {
	for _, one := range b.Keys {
		if one.Max > 0 {
			return true
		}
	}
	return b.Key.Max > 0 || b.All.Max > 0
}

// Check returns [ErrMalformed] if a Bound is not valid, or if Keys has too many keys or a key that
// is not valid.
func (b Bounds) Check() error {
	if len(b.Keys) > MaxBoundKeys {
		return fmt.Errorf("%w: bounds of %d keys, at most %d", ErrMalformed, len(b.Keys), MaxBoundKeys)
	}
	if err := b.Key.check(); err != nil {
		return err
	}
	if err := b.All.check(); err != nil {
		return err
	}
	for key, one := range b.Keys {
		if !naming.ValidKey(key) {
			return fmt.Errorf("%w: a bound of the key %.40q, which is not valid", ErrMalformed, key)
		}
		if err := one.check(); err != nil {
			return fmt.Errorf("key %q: %w", key, err)
		}
	}
	return nil
}

// Bounder is a Subscription whose Bounds can be changed.
type Bounder interface {
	// SetBounds replaces the Bounds of SubscribeOptions. The next message is taken by b. Messages that
	// the subscription holds stay. It does not wait for the broker. Returns [ErrMalformed] if b is not
	// valid, or if it has a limit and the queue is not fair.
	SetBounds(b Bounds) error
}

// KeyState counts the messages of a fairness key of a queue.
type KeyState struct {
	Key   string
	Ready int // waiting for a consumer
	// Held messages are delivered and not settled. -1: unknown, because no consumer uses bounds.
	Held int
	// Oldest is the time since which the oldest ready message waits. Zero: no message is ready, or the
	// broker does not know it.
	Oldest time.Time
	// Used is the time up to which the rate of the key is used, see [Bound.FreeAt]. Zero: nothing is
	// used.
	Used time.Time
}

// KeyPage is a part of the keys of a queue.
type KeyPage struct {
	Keys []KeyState
	// Next is the cursor of the next page. "": this page is the last one.
	Next string
	// Used is the time up to which the rate of the whole queue is used. Zero: nothing is used.
	Used time.Time
}

// KeyLister is a Broker that can show the fairness keys of its queues.
type KeyLister interface {
	// ListKeys returns a page of the keys that have ready or held messages or have used their rate.
	//
	//   - Keys are in the order of their bytes. cursor is the lowest key of the page, "" for the
	//     first.
	//   - limit is the largest number of keys. 0 or less: [DefaultPage]. It is at most [MaxPage].
	//   - Returns [ErrNoQueue] if the queue does not exist, [ErrMalformed] if it is not fair.
	ListKeys(ctx context.Context, queue, cursor string, limit int) (KeyPage, error)
}

// MaxFloor is the largest Floor of SubscribeOptions.
const MaxFloor = 0.5

// CheckOptions returns [ErrMalformed] if Bounds or Floor of o are not valid. An adapter that has
// Bounds calls it in Subscribe, and returns the error of [NotFair] for Bounds of another queue.
func CheckOptions(o SubscribeOptions) error {
	if !(o.Floor >= 0 && o.Floor <= MaxFloor) { // also not a number
		return fmt.Errorf("%w: a floor of %g is not 0 to %g", ErrMalformed, o.Floor, MaxFloor)
	}
	return o.Bounds.Check()
}

// NotFair returns [ErrMalformed] with a text that the queue is not fair. what needs a fair queue,
// such as "bounds".
func NotFair(queue, what string) error {
	return fmt.Errorf("%w: %s need a fair queue, and queue %q is not fair: declare a new queue with Fair", ErrMalformed, what, queue)
}

// RefuseBounds returns [ErrUnsupported], with the name of the queue, if o has Bounds. Otherwise it
// returns the error of [CheckOptions]. An adapter without Bounds calls it in Subscribe.
func RefuseBounds(queue string, o SubscribeOptions) error {
	if err := CheckOptions(o); err != nil || o.Bounds.IsZero() {
		return err
	}
	return fmt.Errorf("bounds of queue %q: %w by this broker; use Redis, PostgreSQL, SQLite or memory, or limit the whole queue with `swarmiji queue limit`", queue, ErrUnsupported)
}
