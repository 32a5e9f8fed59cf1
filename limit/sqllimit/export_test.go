package sqllimit

import "math"

// NeverSweep prevents sweeps of l, until SweepNow.
func NeverSweep(l *Limiter) { l.swept.Store(math.MaxInt64) }

// SweepNow lets the next call of Acquire sweep.
func SweepNow(l *Limiter) { l.swept.Store(0) }
