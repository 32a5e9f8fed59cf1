package ring

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// Stream is a [Ring] for several goroutines: Put never waits, Get waits. Make one with [NewStream].
// Safe for concurrent use.
type Stream[T any] struct {
	closedErr error
	wake      wake.Signal // has a token while the ring may contain elements
	done      chan struct{}
	dropped   atomic.Uint64

	mu     sync.Mutex
	ring   Ring[T]
	closed bool
}

// NewStream makes a Stream of at most max elements. Its Get returns closedErr after Close.
func NewStream[T any](max int, closedErr error) *Stream[T] {
	return &Stream[T]{
		closedErr: closedErr,
		wake:      wake.New(),
		done:      make(chan struct{}),
		ring:      New[T](max),
	}
}

// Put appends a copy of v and wakes a reader if the stream was empty. If the stream is full, the
// oldest element is dropped and counted. After Close it does nothing.
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

// Get removes and returns the oldest element. If the stream is empty, it waits for an element. It
// returns ctx's error when ctx ends, and the stream's closedErr after Close.
func (s *Stream[T]) Get(ctx context.Context) (v T, err error) {
	for looked := false; ; {
		s.mu.Lock()
		ok := s.ring.Pop(&v)
		more := s.ring.Len() > 0
		s.mu.Unlock()
		if more {
			s.wake.Notify() // wake another reader: the token for these elements may be used up
		}
		if ok {
			return v, nil
		}
		if !looked {
			// Writers may be about to run on this processor. Yielding once is cheaper than a wake-up by each
			// of them.
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

// Len returns the number of waiting elements.
func (s *Stream[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ring.Len()
}

// Dropped returns the number of elements that a full stream dropped since NewStream.
func (s *Stream[T]) Dropped() uint64 { return s.dropped.Load() }

// Close drops the waiting elements and ends every Get. It is idempotent.
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
