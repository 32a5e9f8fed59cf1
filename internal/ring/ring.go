// Package ring holds bounded queues for data that may be lost: events, and notifications of
// results. A full queue drops its oldest element. So a writer never waits, and a stuck reader costs
// a fixed amount of memory.
package ring

// Ring is a bounded queue. The zero value cannot hold elements; make one with [New]. It is not safe
// for concurrent use.
type Ring[T any] struct {
	buf  []T
	head int // index of the oldest element
	n    int
	max  int
}

// New makes a Ring of at most max elements (at least one). Its memory grows with the number of
// elements.
func New[T any](max int) Ring[T] {
	if max < 1 {
		max = 1
	}
	return Ring[T]{max: max}
}

// firstSize is the capacity that the first Push allocates.
const firstSize = 16

// Push appends a copy of v. It reports whether it dropped the oldest element because the ring was
// full.
func (r *Ring[T]) Push(v *T) (dropped bool) {
	if r.n == len(r.buf) {
		if r.n == r.max {
			r.buf[r.head] = *v
			r.head = r.next(r.head)
			return true
		}
		r.grow()
	}
	tail := r.head + r.n
	if tail >= len(r.buf) {
		tail -= len(r.buf)
	}
	r.buf[tail] = *v
	r.n++
	return false
}

// Pop moves the oldest element to v. If the ring is empty, it returns false and leaves v unchanged.
func (r *Ring[T]) Pop(v *T) bool {
	if r.n == 0 {
		return false
	}
	var zero T
	*v = r.buf[r.head]
	r.buf[r.head] = zero // so that the garbage collector can free the data it points to
	r.head = r.next(r.head)
	r.n--
	return true
}

// Len returns the number of elements.
func (r *Ring[T]) Len() int { return r.n }

// Clear drops all elements and their memory.
func (r *Ring[T]) Clear() {
	r.buf, r.head, r.n = nil, 0, 0
}

// next returns the index after i in r.buf, which is 0 after the last one.
func (r *Ring[T]) next(i int) int {
	if i++; i == len(r.buf) {
		return 0
	}
	return i
}

// grow replaces r.buf by a larger one, up to max elements, with the elements in order from index 0.
func (r *Ring[T]) grow() {
	buf := make([]T, min(max(2*len(r.buf), firstSize), r.max))
	n := copy(buf, r.buf[r.head:])
	copy(buf[n:], r.buf[:r.head])
	r.buf, r.head = buf, 0
}
