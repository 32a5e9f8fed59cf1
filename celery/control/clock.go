package control

import (
	"encoding/json"
	"sync/atomic"
)

// maxClock limits received values of the clock, so that a wrong sender cannot exhaust it.
const maxClock = 1 << 53

// clock is a Lamport clock. Safe for concurrent use.
type clock struct{ value atomic.Int64 }

// forward advances the clock by one and returns its value.
func (c *clock) forward() int64 { return c.value.Add(1) }

// adjust moves the clock behind a received value. It ignores values that are not whole numbers from
// 1 to maxClock.
func (c *clock) adjust(received any) {
	var n int64
	switch v := received.(type) {
	case int64:
		n = v
	case float64:
		if v >= 1 && v <= maxClock {
			n = int64(v)
		}
	case json.Number:
		n, _ = v.Int64()
	}
	if n < 1 || n > maxClock {
		return
	}
	for {
		now := c.value.Load()
		if now > n || c.value.CompareAndSwap(now, n+1) {
			return
		}
	}
}
