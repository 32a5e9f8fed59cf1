package suite

import (
	"fmt"
	"time"
	"unsafe"
)

// WrongClock returns t as a process would have it whose wall clock is ahead by a number of whole
// seconds. t comes from time.Now().Add. The reading of the monotonic clock stays the same. Without
// such a reading WrongClock returns t.Add(ahead).
func WrongClock(t time.Time, ahead time.Duration) time.Time {
	wrong := t
	if t == t.Round(0) { //nolint:staticcheck // Equal ignores the monotonic clock
		return t.Add(ahead)
	}
	// The first field of a Time with both readings holds nanoseconds in its lowest 30 bits, and
	// seconds above them.
	wall := (*uint64)(unsafe.Pointer(&wrong)) //nolint:gosec // package time cannot set one reading
	*wall += uint64(int64(ahead/time.Second)) << 30
	if wrong.Sub(t) != 0 || wrong.Round(0).Sub(t.Round(0)) != ahead {
		panic(fmt.Sprintf("suite: %v ahead by %v became %v: Go keeps times in another way now", t, ahead, wrong))
	}
	return wrong
}
