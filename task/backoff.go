package task

import (
	"math/rand/v2"
	"time"
)

// Strategy says how the delays between the attempts of a task grow. The names are part of the wire format.
type Strategy string

// The strategies of a [Backoff].
const (
	BackoffNone        Strategy = ""            // every delay is the task's RetryDelay
	BackoffConstant    Strategy = "constant"    // Base, Base, Base
	BackoffLinear      Strategy = "linear"      // Base, 2 Base, 3 Base
	BackoffExponential Strategy = "exponential" // Base, 2 Base, 4 Base with Factor 1; Base, 4 Base, 16 Base with Factor 2
)

// Defaults of a [Backoff] between the attempts of a task, and between those to connect.
const (
	DefaultBackoffBase   = time.Second
	DefaultBackoffMax    = 10 * time.Minute
	DefaultReconnectBase = 100 * time.Millisecond
	DefaultReconnectMax  = 5 * time.Second
)

// maxBackoffFactor is already more than any delay can grow.
const maxBackoffFactor = 63

// Backoff gives the delays between attempts: of a task ([Backoff.Delay]), or to reach a server ([Backoff.Interval]). It is
// data and can travel in a message. Safe for concurrent use.
//
// The zero value leaves the delay of a task to its RetryDelay. Between attempts to reach a server it is exponential with
// jitter, from 100 ms to 5 s.
type Backoff struct {
	Strategy Strategy
	// Base is the first delay. In a message it has whole milliseconds. Default: 1 s; to reach a server, 100 ms.
	Base time.Duration
	// Factor is how often BackoffExponential doubles each delay. Default: 1.
	Factor int
	// Max is the longest delay. In a message it has whole milliseconds. Default: 10 min; to reach a server, 5 s.
	Max time.Duration
	// Jitter draws each delay from all between 0 and what the strategy says ("full jitter"), so that many failures at once do
	// not come back at once. For a task it is drawn from the task's id and the number of the retry, so that it can be told in
	// advance.
	Jitter bool
}

// Ceiling returns the delay before retry n, counted from 0, without jitter. It is false for BackoffNone, and for a strategy
// that is not known.
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

// Delay returns the delay before retry n of a task, counted from 0. It is false where [Backoff.Ceiling] is.
func (b Backoff) Delay(id ID, n int) (time.Duration, bool) {
	d, ok := b.Ceiling(n)
	if !ok || !b.Jitter {
		return d, ok
	}
	return time.Duration(draw(id, n) % uint64(d+1)), true
}

// Interval returns the time before attempt n to reach a server, counted from 0. It is at least 1 ns. Without a strategy that
// is known it is exponential with jitter. A Max below Base counts as Base. Jitter is random here.
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

// draw returns a number that depends on nothing but id and n, and on these evenly.
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

// double returns base doubled the given number of times, at most limit. It does not overflow: base and limit are not
// negative, and times below 0 counts as 0.
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

// times returns n times step, at most limit. It does not overflow: step, limit and n are not negative.
func times(step, limit time.Duration, n int) time.Duration {
	if n > 0 && step > limit/time.Duration(n) {
		return limit
	}
	return time.Duration(n) * step
}
