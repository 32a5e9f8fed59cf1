package backoff

import "time"

// Double returns base doubled the given number of times, at most limit. It does not overflow: base and limit are not
// negative, and times below 0 counts as 0.
func Double(base, limit time.Duration, times int) time.Duration {
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

// Times returns n times step, at most limit. It does not overflow: step, limit and n are not negative.
func Times(step, limit time.Duration, n int) time.Duration {
	if n > 0 && step > limit/time.Duration(n) {
		return limit
	}
	return time.Duration(n) * step
}
