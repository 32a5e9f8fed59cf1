package membroker

import "iter"

// ring is a queue of items in which a removed item leaves a hole. The zero value is empty. The
// queue's mutex guards it.
type ring struct {
	slots      []*item // its length is a power of two; the item at position p is in slots[p & (len-1)]
	head, tail uint64  // positions of the first used and the first free slot
	holes      int     // used slots without an item
}

// minRing is the smallest number of slots of a ring that shrinks.
const minRing = 64

// push adds the item at the end, sets its index, and grows the ring if it is full. Call it with the
// queue's mutex held.
func (r *ring) push(it *item) {
	if int(r.tail-r.head) == len(r.slots) {
		r.resize()
	}
	it.index = int(r.tail)
	r.slots[r.tail&uint64(len(r.slots)-1)] = it
	r.tail++
}

// pop removes and returns the first item, or returns nil. It shrinks a ring that is mostly empty.
// Call it with the queue's mutex held.
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

// front returns the first item, or nil. It moves head over holes. Call it with the queue's mutex
// held.
func (r *ring) front() *item {
	for ; r.head != r.tail; r.head++ {
		if it := r.slots[r.head&uint64(len(r.slots)-1)]; it != nil {
			return it
		}
		r.holes--
	}
	return nil
}

// remove replaces the item, which must be in the ring, by a hole. It does not shrink the ring. Call
// it with the queue's mutex held.
func (r *ring) remove(it *item) {
	r.slots[uint64(it.index)&uint64(len(r.slots)-1)] = nil
	r.holes++
}

// resize moves the items, without the holes, to new slots. Their number is a power of two with room
// for at least twice the items, at least minRing. Call it with the queue's mutex held.
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

// all iterates over the items, first to last, and removes none. Hold the queue's mutex during the
// iteration, and do not change the ring.
func (r *ring) all() iter.Seq[*item] {
	return func(yield func(it *item) bool) {
		for p := r.head; p != r.tail; p++ {
			if it := r.slots[p&uint64(len(r.slots)-1)]; it != nil && !yield(it) {
				return
			}
		}
	}
}
