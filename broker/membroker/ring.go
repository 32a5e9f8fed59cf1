package membroker

// ring is a queue of items in which a removed item leaves a hole. The zero value is empty.
type ring struct {
	slots      []*item // its length is a power of two; the item at position p is in slots[p & (len-1)]
	head, tail uint64  // positions of the first slot in use and of the first free one
	holes      int
}

// minRing is the smallest number of slots that a ring shrinks to.
const minRing = 64

func (r *ring) push(it *item) {
	if int(r.tail-r.head) == len(r.slots) {
		r.resize()
	}
	it.pos = r.tail
	r.slots[r.tail&uint64(len(r.slots)-1)] = it
	r.tail++
}

// pop takes the first item, or returns nil.
func (r *ring) pop() *item {
	for r.head != r.tail {
		slot := &r.slots[r.head&uint64(len(r.slots)-1)]
		it := *slot
		*slot = nil
		r.head++
		if it == nil {
			r.holes--
			continue
		}
		if n := int(r.tail - r.head); len(r.slots) > minRing && n < len(r.slots)/8 {
			r.resize()
		}
		return it
	}
	return nil
}

// remove makes a hole where it is.
func (r *ring) remove(it *item) {
	r.slots[it.pos&uint64(len(r.slots)-1)] = nil
	r.holes++
}

// resize moves the items, without the holes, to as many slots as leave room for twice their number.
func (r *ring) resize() {
	old, head, tail := r.slots, r.head, r.tail
	size := minRing
	for size < 2*(int(tail-head)-r.holes) {
		size *= 2
	}
	*r = ring{slots: make([]*item, size)}
	for p := head; p != tail; p++ {
		if it := old[p&uint64(len(old)-1)]; it != nil {
			r.push(it)
		}
	}
}

// each calls fn for every item, first to last.
func (r *ring) each(fn func(it *item)) {
	for p := r.head; p != r.tail; p++ {
		if it := r.slots[p&uint64(len(r.slots)-1)]; it != nil {
			fn(it)
		}
	}
}
