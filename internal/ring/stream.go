package ring

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// Stream is a [Ring] between goroutines: Put never waits, Get waits. Make one with [NewStream]. All methods may be called
// from any goroutine.
type Stream[T any] struct {
	closedErr error
	wake      wake.Signal // holds a token while there may be elements
	done      chan struct{}
	dropped   atomic.Uint64

	mu     sync.Mutex
	ring   Ring[T]
	closed bool
}

// NewStream makes a Stream of at most max elements whose Get returns closedErr after Close.
func NewStream[T any](max int, closedErr error) *Stream[T] {
	return &Stream[T]{
		closedErr: closedErr,
		wake:      wake.New(),
		done:      make(chan struct{}),
		ring:      New[T](max),
	}
}

// Put appends a copy of v; the oldest element gives way to it when the stream is full. After Close it does nothing.
func (s *Stream[T]) Put(v *T) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	dropped := s.ring.Push(v)
	first := s.ring.Len() == 1
	s.mu.Unlock()
	if dropped {
		s.dropped.Add(1)
	}
	if first {
		s.wake.Notify()
	}
}

// Get takes the oldest element, and waits for one until ctx ends. It returns ctx's error, or the stream's closedErr as
// soon as the stream was closed.
func (s *Stream[T]) Get(ctx context.Context) (v T, err error) {
	for looked := false; ; {
		s.mu.Lock()
		ok := s.ring.Pop(&v)
		more := s.ring.Len() > 0
		s.mu.Unlock()
		if more {
			s.wake.Notify() // for another reader: the token of these elements may be gone
		}
		if ok {
			return v, nil
		}
		if !looked {
			// Those that put may be about to run on this processor: to be woken by each of them costs more than to let them go first.
			looked = true
			runtime.Gosched()
			continue
		}
		select {
		case <-s.wake:
		case <-s.done:
			return v, s.closedErr
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}

// Len returns the number of elements that wait.
func (s *Stream[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ring.Len()
}

// Dropped returns the number of elements that gave way since NewStream.
func (s *Stream[T]) Dropped() uint64 { return s.dropped.Load() }

// Close drops what waits and ends every Get. It is idempotent.
func (s *Stream[T]) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.ring.Clear()
	close(s.done)
}
