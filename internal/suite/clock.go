package suite

import (
	"fmt"
	"time"
	"unsafe"
)

// WrongClock returns the time t, which time.Now().Add has returned, as a process would have it whose
// wall clock is ahead by so many whole seconds: the reading of the monotonic clock stays. A t without
// such a reading changes as with Add.
func WrongClock(t time.Time, ahead time.Duration) time.Time {
	wrong := t
	if t == t.Round(0) { //nolint:staticcheck // Equal does not compare the readings of the monotonic clock
		return t.Add(ahead)
	}
	// The first field of a Time with both readings holds nanoseconds in its lowest 30 bits, and above them seconds.
	wall := (*uint64)(unsafe.Pointer(&wrong)) //nolint:gosec // no function of the package time sets one reading alone
	*wall += uint64(int64(ahead/time.Second)) << 30
	if wrong.Sub(t) != 0 || wrong.Round(0).Sub(t.Round(0)) != ahead {
		panic(fmt.Sprintf("suite: %v ahead by %v became %v: Go keeps times in another way now", t, ahead, wrong))
	}
	return wrong
}
