package runs

import (
	"sync"
	"sync/atomic"
)

// Stuck counts the handlers of queues that run beyond their time limit. The zero value is ready for
// use. Safe for concurrent use.
type Stuck struct {
	total   atomic.Int64
	mu      sync.Mutex
	byQueue map[string]int // queues with a count above 0
}

// Of returns the number of stuck handlers of a queue.
func (s *Stuck) Of(queue string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byQueue[queue]
}

// Total returns the number of all stuck handlers.
func (s *Stuck) Total() int64 { return s.total.Load() }

// Add adds delta to the counts, in total and of the queue, and returns the total.
func (s *Stuck) Add(queue string, delta int) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byQueue == nil {
		s.byQueue = make(map[string]int)
	}
	if s.byQueue[queue] += delta; s.byQueue[queue] == 0 {
		delete(s.byQueue, queue)
	}
	return s.total.Add(int64(delta))
}
