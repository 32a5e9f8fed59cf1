package turns

import "cmp"

// byTag is a heap of lines by tag. Of equal tags the one that was set first comes first.
type byTag[T any] []*line[T]

func (h byTag[T]) Len() int { return len(h) }

// Less orders lines by tag.
func (h byTag[T]) Less(i, j int) bool {
	return h[i].tag < h[j].tag || h[i].tag == h[j].tag && h[i].set < h[j].set
}

func (h byTag[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push appends x, a *line, for container/heap.
func (h *byTag[T]) Push(x any) {
	l := x.(*line[T])
	l.index = len(*h)
	*h = append(*h, l)
}

// Pop removes and returns the last line, for container/heap.
func (h *byTag[T]) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	l.index = -1
	return l
}

// byOrder is a heap of returned entries by order.
type byOrder[T any] []*Entry[T]

func (h byOrder[T]) Len() int { return len(h) }

// Less orders entries by order.
func (h byOrder[T]) Less(i, j int) bool { return byOrderFunc(h[i], h[j]) < 0 }

func (h byOrder[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push appends x, an *Entry, for container/heap.
func (h *byOrder[T]) Push(x any) {
	e := x.(*Entry[T])
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop removes and returns the last entry, for container/heap.
func (h *byOrder[T]) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.index = -1
	return e
}

// byOrderFunc compares two entries by order.
func byOrderFunc[T any](a, b *Entry[T]) int { return cmp.Compare(a.order, b.order) }
