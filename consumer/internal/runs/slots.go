package runs

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Slots limits how many tasks of a set of workers run at once. The number of workers alone does
// not: a task that was set aside starts on another goroutine. The zero value has no slots. Taking a
// free slot costs one atomic operation. Safe for concurrent use.
type Slots struct {
	limit, used atomic.Int64
	waiting     atomic.Int64 // at least len(waiters)

	mu      sync.Mutex
	waiters []chan struct{} // each is closed when a slot was taken for it
}

// TryAcquire takes a slot if one is free and no goroutine waits for a slot. It reports whether it
// took one. It takes no lock and does not block.
func (s *Slots) TryAcquire() bool { return s.waiting.Load() == 0 && s.tryTake() }

// tryTake takes a slot if one is free and reports whether it did. It ignores waiting goroutines. It
// takes no lock.
func (s *Slots) tryTake() bool {
	for {
		used := s.used.Load()
		if used >= s.limit.Load() {
			return false
		}
		if s.used.CompareAndSwap(used, used+1) {
			return true
		}
	}
}

// Acquire blocks until it has taken a slot or ctx has ended. It reports whether it took a slot. If
// it gets a slot while ctx ends, it may release that slot again and return false. Waiting
// goroutines get slots in the order of their calls. It takes s.mu, but not while it waits.
func (s *Slots) Acquire(ctx context.Context) bool {
	// first, so that a Release from now on grants its slot to a waiter
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	mine := make(chan struct{})
	s.mu.Lock()
	s.waiters = append(s.waiters, mine)
	s.grantLocked()
	s.mu.Unlock()
	select {
	case <-mine:
		return true
	case <-ctx.Done():
	}
	s.mu.Lock()
	i := slices.Index(s.waiters, mine)
	if i >= 0 {
		s.waiters = slices.Delete(s.waiters, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 { // the slot was granted at the same time
		s.Release()
	}
	return false
}

// Release frees a slot. If goroutines wait, it then calls grant, which gives free slots to them in
// order. It takes s.mu only if goroutines wait.
func (s *Slots) Release() {
	s.used.Add(-1)
	if s.waiting.Load() > 0 {
		s.grant()
	}
}

// Resize sets the number of slots. Slots in use stay in use, also if they are more than n. New
// slots go to waiting goroutines first. It takes s.mu.
func (s *Slots) Resize(n int64) {
	s.limit.Store(n)
	s.grant()
}

// grant gives free slots to waiting goroutines. It takes s.mu.
func (s *Slots) grant() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grantLocked()
}

// grantLocked gives free slots to waiting goroutines, in the order of their calls of Acquire, and
// wakes these. Call it with s.mu held.
func (s *Slots) grantLocked() {
	for len(s.waiters) > 0 && s.tryTake() {
		close(s.waiters[0])
		s.waiters = slices.Delete(s.waiters, 0, 1)
	}
}

// Used returns the number of slots in use.
func (s *Slots) Used() int64 { return s.used.Load() }
