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

// rewind makes the next claim begin at the first message. While that is costly, it leaves cursors
// that have moved, since new messages come behind them, and moves the others to the floor.
func (f *fetcher) rewind() {
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

// costly reports whether claims from the first message take long, and the last one was sent not
// long ago.
func (f *fetcher) costly() bool {
	return f.sweep > cheapSweep && time.Since(f.swept) < sweepPart*f.sweep
}
