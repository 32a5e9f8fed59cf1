// Package backoff says how long to wait before something is tried again.
package backoff

import (
	"math/rand/v2"
	"time"
)

// The bounds that a zero [Exponential] uses.
const (
	DefaultMin = 100 * time.Millisecond
	DefaultMax = 5 * time.Second
)

// Exponential doubles a ceiling with each attempt and draws the wait from all of it ("full jitter"), so that many clients
// that lost one server do not come back in step. The zero value waits up to 100 ms at first and up to 5 s in the end.
// It is a value without state: any goroutine may use it.
type Exponential struct {
	// Min is the ceiling of the first wait. 0 or less: 100 ms.
	Min time.Duration
	// Max is the ceiling that is never passed. 0 or less: 5 s. Below Min it counts as Min.
	Max time.Duration
}

// Ceiling returns the longest wait before the attempt after the given one: Min for attempt 0, doubled for each further
// one, at most Max. A negative attempt counts as 0.
func (e Exponential) Ceiling(attempt int) time.Duration {
	lo, hi := e.Min, e.Max
	if lo <= 0 {
		lo = DefaultMin
	}
	if hi <= 0 {
		hi = DefaultMax
	}
	return Double(lo, max(lo, hi), attempt)
}

// Delay returns a random wait of at least 1 ns and at most Ceiling(attempt), each length as likely as any other.
func (e Exponential) Delay(attempt int) time.Duration {
	return 1 + rand.N(e.Ceiling(attempt))
}
