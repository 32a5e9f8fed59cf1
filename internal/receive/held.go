package receive

// Held is a first-in, first-out queue of deliveries that reuses its memory. The zero value is
// empty. Not safe for concurrent use.
type Held[T any] struct {
	items []*T
	head  int
}

// Len returns the number of deliveries in the queue.
func (h *Held[T]) Len() int { return len(h.items) - h.head }

// All returns the deliveries, oldest first. The slice is valid until the next call of another
// method.
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

// Pop removes the oldest delivery and returns it, or returns nil if the queue is empty.
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

// TakeAll empties the queue and returns its deliveries, oldest first.
func (h *Held[T]) TakeAll() []*T {
	all := h.items[h.head:]
	*h = Held[T]{}
	return all
}

// Share returns the prefetch of priority level i of n levels, where level 0 is the most urgent. The
// levels get equal parts of prefetch and at least 1 each, and the remainder goes to the most urgent
// ones. A prefetch of 0 or less is returned unchanged.
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
