package redisconn

import "time"

// Expiry returns ttl in milliseconds, rounded up so that a key never expires early. If ttl is 0 or
// less it returns the argument otherwise in milliseconds, also rounded up.
func Expiry(ttl, otherwise time.Duration) int64 {
	if ttl <= 0 {
		ttl = otherwise
	}
	ms := ttl.Milliseconds()
	if ttl%time.Millisecond > 0 {
		ms++
	}
	return ms
}
