package sqlbroker

import (
	"math"
	"time"
)

const (
	// cursorTime is the time after which a claim begins at the first message again.
	cursorTime = time.Second
	// A claim from the first message that takes longer than cheapSweep may take at most one part in
	// sweepPart of the time.
	cheapSweep = 50 * time.Millisecond
	sweepPart  = 20
	// lateCommit limits the time between the due time of a message and its commit. A message that is
	// committed later is found by a claim from the first message only.
	lateCommit = 2 * time.Second
)

// rewind moves the cursors back, so that the next claim begins at the first message of each level.
// If that is costly, it does nothing once a cursor has moved, since new messages come behind the
// cursors. Otherwise it then moves them to f.floor, before which no free message is due. For a fair
// queue it does nothing, see readKeys.
func (f *fetcher) rewind() {
	if f.ring != nil {
		f.reset = time.Now()
		return
	}
	from := int64(math.MinInt64)
	if f.costly() {
		if f.moved {
			return
		}
		from = f.floor
	}
	for i := range f.due {
		f.due[i], f.seq[i] = from, 0
	}
	f.moved, f.reset = false, time.Now()
}

// costly reports whether claims from the first message take longer than cheapSweep, and the last
// one was sent too recently. Another one would then exceed one part in sweepPart of the time.
func (f *fetcher) costly() bool {
	return f.sweep > cheapSweep && time.Since(f.swept) < sweepPart*f.sweep
}
