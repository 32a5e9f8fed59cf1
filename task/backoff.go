package task

import (
	"math/rand/v2"
	"time"
)

// Strategy names how the delays between the attempts of a task grow. The names are part of the wire
// format.
type Strategy string

// The strategies of a [Backoff].
const (
	BackoffNone     Strategy = ""         // every delay is the task's RetryDelay
	BackoffConstant Strategy = "constant" // Base, Base, Base
	BackoffLinear   Strategy = "linear"   // Base, 2 Base, 3 Base
	// Base, 2 Base, 4 Base with Factor 1; Base, 4 Base, 16 Base with Factor 2
	BackoffExponential Strategy = "exponential"
)

// Defaults of a [Backoff], for the attempts of a task and for the attempts to connect.
const (
	DefaultBackoffBase   = time.Second
	DefaultBackoffMax    = 10 * time.Minute
	DefaultReconnectBase = 100 * time.Millisecond
	DefaultReconnectMax  = 5 * time.Second
)

// maxBackoffFactor is larger than any useful factor: 2^63 exceeds every delay.
const maxBackoffFactor = 63

// Backoff calculates the delays between attempts: of a task ([Backoff.Delay]), or to connect to a
// server ([Backoff.Interval]). It is data and can travel in a message. Safe for concurrent use.
//
// With the zero value a task uses its RetryDelay. Attempts to connect use exponential delays with
// jitter, from 100 ms to 5 s.
type Backoff struct {
	Strategy Strategy
	// Base is the first delay. Messages carry it in whole milliseconds. Default: 1s; for connecting,
	// 100ms.
	Base time.Duration
	// Factor is the number of times that BackoffExponential doubles each delay. Default: 1.
	Factor int
	// Max is the longest delay. Messages carry it in whole milliseconds. Default: 10m; for connecting,
	// 5s.
	Max time.Duration
	// Jitter draws each delay evenly between 0 and the delay of the strategy ("full jitter"). Many
	// failed attempts then do not repeat at the same moment.
	//
	// For a task the delay depends only on the task's id and the number of the retry, so it can be
	// predicted.
	Jitter bool
}

// Ceiling returns the delay before retry n, counted from 0, without jitter. It returns false for
// BackoffNone and for an unknown strategy.
func (b Backoff) Ceiling(n int) (time.Duration, bool) {
	base, limit := b.Base, b.Max
	if base <= 0 {
		base = DefaultBackoffBase
	}
	if limit <= 0 {
		limit = DefaultBackoffMax
	}
	n = max(n, 0)
	switch b.Strategy {
	case BackoffConstant:
		return min(base, limit), true
	case BackoffLinear:
		return times(base, limit, n+1), true
	case BackoffExponential:
		factor := min(max(b.Factor, 1), maxBackoffFactor)
		return double(base, limit, factor*min(n, maxBackoffFactor)), true
	}
	return 0, false
}

// Delay returns the delay before retry n of the task, counted from 0. It returns false when
// [Backoff.Ceiling] does.
func (b Backoff) Delay(id ID, n int) (time.Duration, bool) {
	d, ok := b.Ceiling(n)
	if !ok || !b.Jitter {
		return d, ok
	}
	return time.Duration(draw(id, n) % uint64(d+1)), true
}

// Interval returns the delay before attempt n to connect, counted from 0. It is at least 1 ns.
// Jitter is random here. Without a known strategy the delays are exponential with jitter. A Max
// below Base counts as Base.
func (b Backoff) Interval(n int) time.Duration {
	if b.Base <= 0 {
		b.Base = DefaultReconnectBase
	}
	if b.Max <= 0 {
		b.Max = DefaultReconnectMax
	}
	b.Max = max(b.Max, b.Base)
	d, ok := b.Ceiling(n)
	if !ok {
		b.Strategy, b.Jitter = BackoffExponential, true
		d, _ = b.Ceiling(n)
	}
	if b.Jitter {
		return 1 + rand.N(d)
	}
	return d
}

// draw returns an evenly distributed number that depends only on id and n.
func draw(id ID, n int) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	h += (uint64(n) + 1) * 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9 // splitmix64
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// double returns base doubled the given number of times, at most limit. It does not overflow if
// base and limit are not negative. times below 0 counts as 0.
func double(base, limit time.Duration, times int) time.Duration {
	if base <= 0 {
		return 0
	}
	d := min(base, limit)
	for ; times > 0 && d < limit; times-- {
		if d > limit/2 {
			return limit
		}
		d *= 2
	}
	return d
}

// times returns n times step, at most limit. It does not overflow if step, limit and n are not
// negative.
func times(step, limit time.Duration, n int) time.Duration {
	if n > 0 && step > limit/time.Duration(n) {
		return limit
	}
	return time.Duration(n) * step
}
