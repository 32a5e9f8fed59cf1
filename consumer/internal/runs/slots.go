package runs

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Slots bounds how many tasks of a team run at once. The number of workers is no bound: a task that
// was set aside starts beside them. The zero value has no slot. To take a free slot costs one
// atomic operation.
type Slots struct {
	limit, used atomic.Int64
	waiting     atomic.Int64 // len(line), or more

	mu   sync.Mutex
	line []chan struct{} // each is closed when a slot was taken for it
}

// TryAcquire takes a slot if one is free and no goroutine waits for it.
func (s *Slots) TryAcquire() bool { return s.waiting.Load() == 0 && s.take() }

func (s *Slots) take() bool {
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

// Acquire waits for a slot until ctx ends, and reports whether it has one.
func (s *Slots) Acquire(ctx context.Context) bool {
	// before the line is read, so that a slot released later is handed over
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	mine := make(chan struct{})
	s.mu.Lock()
	s.line = append(s.line, mine)
	s.handLocked()
	s.mu.Unlock()
	select {
	case <-mine:
		return true
	case <-ctx.Done():
	}
	s.mu.Lock()
	i := slices.Index(s.line, mine)
	if i >= 0 {
		s.line = slices.Delete(s.line, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 { // the slot came at the same time
		s.Release()
	}
	return false
}

// Release gives a slot back.
func (s *Slots) Release() {
	s.used.Add(-1)
	if s.waiting.Load() > 0 {
		s.hand()
	}
}

// Resize changes the number of slots. Taken slots stay taken.
func (s *Slots) Resize(n int64) {
	s.limit.Store(n)
	s.hand()
}

func (s *Slots) hand() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handLocked()
}

// handLocked gives free slots to waiting goroutines, in their order.
func (s *Slots) handLocked() {
	for len(s.line) > 0 && s.take() {
		close(s.line[0])
		s.line = slices.Delete(s.line, 0, 1)
	}
}

// Used returns how many slots are taken.
func (s *Slots) Used() int64 { return s.used.Load() }
