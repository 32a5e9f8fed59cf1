package receive

// Held is a queue of deliveries, first in, first out, that keeps its memory. The zero value is empty.
type Held[T any] struct {
	items []*T
	head  int
}

// Len returns how many are held.
func (h *Held[T]) Len() int { return len(h.items) - h.head }

// All returns what is held, the oldest first. It is valid until the next call of another method.
func (h *Held[T]) All() []*T { return h.items[h.head:] }

// Push appends a delivery.
func (h *Held[T]) Push(d *T) {
	if h.head > 0 && len(h.items) == cap(h.items) {
		n := copy(h.items, h.items[h.head:])
		clear(h.items[n:])
		h.items, h.head = h.items[:n], 0
	}
	h.items = append(h.items, d)
}

// Pop takes the oldest; nil: there is none.
func (h *Held[T]) Pop() *T {
	if h.head == len(h.items) {
		return nil
	}
	d := h.items[h.head]
	h.items[h.head] = nil
	if h.head++; h.head == len(h.items) {
		h.items, h.head = h.items[:0], 0
	}
	return d
}

// TakeAll empties the queue and returns what it held.
func (h *Held[T]) TakeAll() []*T {
	all := h.items[h.head:]
	*h = Held[T]{}
	return all
}

// Share returns the part of level i of n in a prefetch: equal parts, what is left over goes to the most urgent levels, and
// each has at least 1. A prefetch of 0 or less is that of every level.
func Share(prefetch, i, n int) int {
	if prefetch <= 0 {
		return prefetch
	}
	part := prefetch / n
	if i < prefetch%n {
		part++
	}
	return max(part, 1)
}
