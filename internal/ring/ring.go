// Package ring holds the bounded queues of the things that may be lost: events, and notifications of results. When one is
// full, the oldest element gives way, so that who puts never waits and a stuck reader costs a fixed amount of memory.
package ring

// Ring is a bounded queue. The zero value holds nothing; make one with [New]. It is not safe for concurrent use.
type Ring[T any] struct {
	buf  []T
	head int // index of the oldest element
	n    int
	max  int
}

// New makes a Ring of at most max elements (at least one). Its memory grows with what is in it.
func New[T any](max int) Ring[T] {
	if max < 1 {
		max = 1
	}
	return Ring[T]{max: max}
}

// firstSize is the capacity that the first Push allocates.
const firstSize = 16

// Push appends a copy of v. It reports whether the oldest element had to go for it.
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

// Pop moves the oldest element to v; it returns false, and leaves v as it is, when there is none.
func (r *Ring[T]) Pop(v *T) bool {
	if r.n == 0 {
		return false
	}
	var zero T
	*v = r.buf[r.head]
	r.buf[r.head] = zero // so that the collector may have what it points to
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

func (r *Ring[T]) next(i int) int {
	if i++; i == len(r.buf) {
		return 0
	}
	return i
}

func (r *Ring[T]) grow() {
	buf := make([]T, min(max(2*len(r.buf), firstSize), r.max))
	n := copy(buf, r.buf[r.head:])
	copy(buf[n:], r.buf[:r.head])
	r.buf, r.head = buf, 0
}
