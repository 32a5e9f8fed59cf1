// Package recent keeps the newest values of a stream, which several readers read at their own pace.
package recent

import "sync"

// List holds the newest values under consecutive numbers, from 0. Make one with [New]. Safe for
// concurrent use.
type List[T any] struct {
	size int

	mu     sync.Mutex
	values []T           // value n is at n % size
	next   uint64        // number of the next value
	more   chan struct{} // closed and replaced when a value comes
	closed bool
}

// New returns an empty list of at most size values.
func New[T any](size int) *List[T] { return &List[T]{size: size, more: make(chan struct{})} }

// Add appends v under the number [List.Next], and wakes the readers. If the list is full it removes
// and returns its oldest value.
func (l *List[T]) Add(v T) (oldest T, removed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.values) < l.size {
		l.values = append(l.values, v)
	} else {
		at := &l.values[l.next%uint64(l.size)]
		oldest, removed = *at, true
		*at = v
	}
	l.next++
	close(l.more)
	l.more = make(chan struct{})
	return oldest, removed
}

// Next returns the number of the next value.
func (l *List[T]) Next() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// From examines the values from number first on until match has returned true for n of them. It
// returns copies of these n, and the number after the last examined value. lost reports that values
// from first on are gone. more is closed when another value comes, and by Close.
func (l *List[T]) From(first uint64, n int, match func(*T) bool) (vs []T, next uint64, lost bool, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if oldest := l.next - uint64(len(l.values)); first < oldest {
		first, lost = oldest, true
	}
	for ; first < l.next && len(vs) < n; first++ {
		if v := &l.values[first%uint64(l.size)]; match(v) {
			vs = append(vs, *v)
		}
	}
	return vs, first, lost, l.more
}

// Close wakes the readers for good. Add panics after it. Further calls of Close do nothing.
func (l *List[T]) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.more)
	}
}

// Closed reports whether Close was called.
func (l *List[T]) Closed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}
