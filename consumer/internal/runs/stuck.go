package runs

import "sync/atomic"

// Stuck counts the handlers of queues that run beyond their time limit. Make it with [NewStuck].
// Safe for concurrent use.
type Stuck struct {
	total   atomic.Int64
	byQueue map[string]*atomic.Int64 // one count per queue; the map does not change
}

// NewStuck returns a count of 0 for each queue.
func NewStuck(queues ...string) *Stuck {
	by := make(map[string]*atomic.Int64, len(queues))
	for _, name := range queues {
		by[name] = new(atomic.Int64)
	}
	return &Stuck{byQueue: by}
}

// Of returns the number of stuck handlers of a queue, 0 for an unknown queue.
func (s *Stuck) Of(queue string) int {
	if n := s.byQueue[queue]; n != nil {
		return int(n.Load())
	}
	return 0
}

// Total returns the number of all stuck handlers.
func (s *Stuck) Total() int64 { return s.total.Load() }

// Add adds delta to the counts, in total and of the queue, and returns the total. An unknown queue
// has no count of its own.
func (s *Stuck) Add(queue string, delta int) int64 {
	if n := s.byQueue[queue]; n != nil {
		n.Add(int64(delta))
	}
	return s.total.Add(int64(delta))
}
