package memresults

import (
	"time"

	"github.com/swarmiji/swarmiji/resultstore"
)

// entry holds a stored record. The record never changes: a newer record is a new entry, so that a
// stream may still hold the old one.
type entry struct {
	rec     resultstore.Record
	expires time.Duration // since the start of the store, on the monotonic clock
	pos     int           // index in expiry
}

// expiry is a binary heap of entries; the entry that expires first is at index 0. Every entry knows
// its index, so that a deleted record is removed at once. Guarded by table.mu.
type expiry []*entry

// push adds e, sets its index and restores the order of the heap. Call it with table.mu held.
func (h *expiry) push(e *entry) {
	e.pos = len(*h)
	*h = append(*h, e)
	h.up(e.pos)
}

// remove removes e, which must be in the heap, and restores the order of the heap. Call it with
// table.mu held.
func (h *expiry) remove(e *entry) {
	i, last := e.pos, len(*h)-1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	if i < last {
		h.fix(i)
	}
}

// replace puts e at the index of old, which is then no longer in the heap, and restores the order
// of the heap. Call it with table.mu held.
func (h *expiry) replace(old, e *entry) {
	e.pos = old.pos
	(*h)[e.pos] = e
	h.fix(e.pos)
}

// fix restores the order of the heap after the expiry of the entry at i changed.
func (h *expiry) fix(i int) {
	if !h.down(i) {
		h.up(i)
	}
}

// swap swaps two entries and updates their indexes.
func (h expiry) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

// up moves the entry at i towards index 0, until its parent does not expire later.
func (h expiry) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].expires <= h[i].expires {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

// down moves the entry at i away from index 0, until no child expires earlier. It reports whether
// it moved.
func (h expiry) down(i int) (moved bool) {
	for {
		least := 2*i + 1
		if least >= len(h) {
			return moved
		}
		if right := least + 1; right < len(h) && h[right].expires < h[least].expires {
			least = right
		}
		if h[i].expires <= h[least].expires {
			return moved
		}
		h.swap(i, least)
		i, moved = least, true
	}
}
