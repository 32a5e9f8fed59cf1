// Package turns gives out items in turns over their keys, in proportion to weights. It is
// start-time fair queueing. The floating-point tags are those that a Redis sorted set can hold.
//
// Each key has a tag, and the item of the lowest tag is next. Taking an item of weight w raises the
// tag of its key by 1/w. The clock is the lowest tag of a key with items. A new key starts at the
// clock, so it has no credit for the time before. A key without items is forgotten when the clock
// has reached its tag. Forgotten earlier, a key with one item at a time would always be first.
package turns

import (
	"container/heap"
	"iter"
	"slices"
)

// Turns holds items by key. Within a key they are in order. The zero value is empty. Not safe for
// concurrent use.
type Turns[T any] struct {
	clock float64
	lines map[string]*line[T]
	busy  byTag[T] // keys with items, without those in parked
	idle  byTag[T] // keys without items, whose tag is above the clock
	// keys with items that take no turns, see Park; nil before the first Park
	parked map[string]*line[T]
	set    uint64 // number of tags that were set, to order equal tags
	n      int
}

// Entry is the place of an item. It stays valid when the item was taken, for Return.
type Entry[T any] struct {
	Item       T
	line       *line[T] // nil: the item is not in a Turns
	prev, next *Entry[T]
	key        string
	order      uint64
	cost       float64 // 1 / weight
	index      int     // in the heap of returned items of its line; -1: it is in the list
}

// Key returns the key of the item.
func (e *Entry[T]) Key() string { return e.key }

// line holds the items of one key.
type line[T any] struct {
	key        string
	tag        float64
	set        uint64 // when the tag was set; of equal tags the earlier one is first
	n          int    // number of items
	index      int    // in busy or idle; -1: in neither
	head, tail *Entry[T]
	returned   byOrder[T] // before the list
	credit     float64    // sum of the costs of the returned items
}

// Len returns the number of items.
func (t *Turns[T]) Len() int { return t.n }

// Keys returns the number of keys that are known: those with items, and those whose last turns are
// not over.
func (t *Turns[T]) Keys() int { return len(t.lines) }

// Push adds an item at the end of its key. weight is 1 or more; 0 means 1. order is the place of
// the item among returned ones, see Return. Pass ascending numbers for the items of a key.
func (t *Turns[T]) Push(key string, weight int, order uint64, item T) *Entry[T] {
	e := &Entry[T]{Item: item, key: key, order: order, cost: 1 / float64(max(1, weight)), index: -1}
	l := t.lineOf(key)
	e.line = l
	if e.prev = l.tail; e.prev == nil {
		l.head = e
	} else {
		e.prev.next = e
	}
	l.tail = e
	t.added(l)
	return e
}

// Return adds the item of an entry that was taken. It is before all pushed items of its key, and in
// its order among the returned ones. The turn that it took is refunded.
func (t *Turns[T]) Return(e *Entry[T]) {
	l := t.lineOf(e.key)
	e.line = l
	heap.Push(&l.returned, e)
	l.credit += e.cost
	// no more credit than for the returned items: the key had no items for some of the time
	t.setTag(l, max(l.tag-e.cost, t.clock-l.credit))
	t.added(l)
}

// Park stops the turns of a key until Unpark: Peek and Pop pass over it. Its items and its tag
// stay. Park does nothing for a key without items.
func (t *Turns[T]) Park(key string) {
	l := t.lines[key]
	if l == nil || l.empty() || t.isParked(l) {
		return
	}
	heap.Remove(&t.busy, l.index)
	if t.parked == nil {
		t.parked = make(map[string]*line[T])
	}
	t.parked[key] = l
}

// Unpark lets a parked key take turns again. It has no credit for the time before. It does nothing
// for a key that is not parked.
func (t *Turns[T]) Unpark(key string) {
	if l := t.parked[key]; l != nil {
		t.unpark(l)
	}
}

// UnparkAll lets all keys take turns.
func (t *Turns[T]) UnparkAll() {
	for _, l := range t.parked {
		t.unpark(l)
	}
}

// unpark moves a line from parked to busy, with a tag that has reached the clock.
func (t *Turns[T]) unpark(l *line[T]) {
	delete(t.parked, l.key)
	if least := t.clock - l.credit; l.tag < least {
		t.setTag(l, least)
	}
	heap.Push(&t.busy, l)
}

// isParked reports whether the line is parked. It is cheap if no key is.
func (t *Turns[T]) isParked(l *line[T]) bool { return len(t.parked) > 0 && t.parked[l.key] == l }

// Peek returns the entry of the next item, or nil. It takes nothing.
func (t *Turns[T]) Peek() *Entry[T] {
	if len(t.busy) == 0 {
		return nil
	}
	return t.busy[0].first()
}

// Pop takes the next item and returns its entry, or returns nil.
func (t *Turns[T]) Pop() *Entry[T] {
	e := t.Peek()
	if e == nil {
		return nil
	}
	l := e.line
	t.unlink(e)
	t.setTag(l, l.tag+e.cost)
	t.removed(l)
	return e
}

// Remove removes an item, which uses no turn. It does nothing for an entry that was taken.
func (t *Turns[T]) Remove(e *Entry[T]) {
	if l := e.line; l != nil {
		back := e.index >= 0
		t.unlink(e)
		if least := t.clock - l.credit; back && l.tag < least {
			t.setTag(l, least)
		}
		t.removed(l)
	}
}

// SetWeight changes the weight of an item.
func (t *Turns[T]) SetWeight(e *Entry[T], weight int) {
	cost := 1 / float64(max(1, weight))
	if e.line != nil && e.index >= 0 {
		e.line.credit += cost - e.cost
	}
	e.cost = cost
}

// All iterates over the items in the order in which Pop would take them if no key was parked, and
// takes none. The time of its first step grows with the number of keys. Do not change t during the
// iteration.
func (t *Turns[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		lines := make(byTag[T], 0, len(t.busy)+len(t.parked))
		for l := range t.withItems() {
			copied := *l
			copied.returned = slices.SortedFunc(slices.Values(l.returned), byOrderFunc[T])
			lines = append(lines, &copied)
		}
		heap.Init(&lines)
		for set := t.set; len(lines) > 0; set++ {
			l := lines[0]
			e := l.head
			if len(l.returned) > 0 {
				e, l.returned = l.returned[0], l.returned[1:]
			} else {
				l.head = e.next
			}
			if !yield(e.Item) {
				return
			}
			l.tag, l.set = l.tag+e.cost, set
			if l.head == nil && len(l.returned) == 0 {
				heap.Pop(&lines)
			} else {
				heap.Fix(&lines, 0)
			}
		}
	}
}

// Fronts iterates over the first item of each key, in no order. If a key has returned items, the
// first of the others follows. Do not change t during the iteration.
func (t *Turns[T]) Fronts() iter.Seq[T] {
	return func(yield func(T) bool) {
		for l := range t.withItems() {
			if len(l.returned) > 0 && !yield(l.returned[0].Item) {
				return
			}
			if l.head != nil && !yield(l.head.Item) {
				return
			}
		}
	}
}

// Counts iterates over the keys with items and their numbers of items, in no order. Do not change t
// during the iteration.
func (t *Turns[T]) Counts() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for l := range t.withItems() {
			if !yield(l.key, l.n) {
				return
			}
		}
	}
}

// withItems iterates over the lines with items, those in busy first.
func (t *Turns[T]) withItems() iter.Seq[*line[T]] {
	return func(yield func(*line[T]) bool) {
		for _, l := range t.busy {
			if !yield(l) {
				return
			}
		}
		for _, l := range t.parked {
			if !yield(l) {
				return
			}
		}
	}
}

// lineOf returns the line of a key. A new one starts at the clock.
func (t *Turns[T]) lineOf(key string) *line[T] {
	l := t.lines[key]
	if l == nil {
		if t.lines == nil {
			t.lines = make(map[string]*line[T])
		}
		l = &line[T]{key: key, tag: t.clock, set: t.set, index: -1}
		t.set++
		t.lines[key] = l
	}
	return l
}

// empty reports whether the line has no items.
func (l *line[T]) empty() bool { return l.head == nil && len(l.returned) == 0 }

// first returns the next entry of a line that is not empty.
func (l *line[T]) first() *Entry[T] {
	if len(l.returned) > 0 {
		return l.returned[0]
	}
	return l.head
}

// setTag sets the tag of a line and restores the order of the heap that the line is in.
func (t *Turns[T]) setTag(l *line[T], tag float64) {
	l.tag, l.set = tag, t.set
	t.set++
	switch {
	case l.index < 0:
	case l.index < len(t.busy) && t.busy[l.index] == l:
		heap.Fix(&t.busy, l.index)
	default:
		heap.Fix(&t.idle, l.index)
	}
}

// added counts an item that was added to l, and moves the line to busy unless it is parked.
func (t *Turns[T]) added(l *line[T]) {
	t.n++
	l.n++
	if t.isParked(l) {
		return
	}
	if l.index >= 0 {
		if l.index < len(t.busy) && t.busy[l.index] == l {
			return
		}
		heap.Remove(&t.idle, l.index)
	}
	heap.Push(&t.busy, l)
}

// unlink removes an entry from its line.
func (t *Turns[T]) unlink(e *Entry[T]) {
	l := e.line
	e.line = nil
	if e.index >= 0 {
		heap.Remove(&l.returned, e.index)
		if l.credit -= e.cost; len(l.returned) == 0 {
			l.credit = 0 // without the errors of the sums
		}
		return
	}
	if e.prev == nil {
		l.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
}

// maxSpare is the number of keys up to which an empty Turns keeps its memory.
const maxSpare = 64

// reset forgets all keys of a Turns without items.
func (t *Turns[T]) reset() {
	if len(t.lines) > maxSpare {
		*t = Turns[T]{}
		return
	}
	clear(t.lines)
	clear(t.idle)
	clear(t.parked)
	t.idle, t.clock, t.set = t.idle[:0], 0, 0
}

// removed counts an item that was removed from l. It moves an empty line to idle and advances the
// clock. It forgets the idle lines that the clock has reached.
func (t *Turns[T]) removed(l *line[T]) {
	t.n--
	l.n--
	if l.empty() {
		if t.isParked(l) {
			delete(t.parked, l.key)
		} else {
			heap.Remove(&t.busy, l.index)
		}
		heap.Push(&t.idle, l)
	}
	if t.n == 0 { // all turns are over
		t.reset()
		return
	}
	if len(t.busy) > 0 {
		t.clock = max(t.clock, t.busy[0].tag)
	}
	for len(t.idle) > 0 && t.idle[0].tag <= t.clock {
		delete(t.lines, heap.Pop(&t.idle).(*line[T]).key)
	}
}
