package membroker

import (
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/turns"
)

// place says in which container of its queue an item is.
type place uint8

const (
	gone  place = iota // acknowledged, dead-lettered, removed or replaced
	ready              // in the ring or the turns of its level
	// in the heap or the turns of its level: returned by a consumer, before everything in the ring
	// or in its key
	returned
	delayed // waiting for its time
	held    // delivered and not settled
)

// item is a message in a queue. The queue's mutex guards its fields, except index and due of a
// delayed item, which the clock's mutex guards.
type item struct {
	m     *broker.Message
	q     *queue
	same  *item  // the item before it with the same ID in the same queue, or nil
	seq   uint64 // order of arrival in the queue
	index int    // in the ring or the heap; -1: in no heap
	// in the turns of its level, also while it is held; nil: the queue is not fair
	entry *turns.Entry[*item]
	due   time.Time // due time of a delayed item; it does not change while the item is delayed
	since int64     // when it became ready the last time, in Unix nanoseconds
	count int32     // number of deliveries
	level uint8
	place place
	// it counts in the load of the queue
	counted bool
	newer   bool     // a later item has the same ID: q.byID leads to that one
	first   delivery // the first delivery; part of the item to save an allocation
}

// bySeq is a heap of items in the order of their arrival.
type bySeq []*item

func (h bySeq) Len() int { return len(h) }

// Less orders items by arrival.
func (h bySeq) Less(i, j int) bool { return h[i].seq < h[j].seq }

func (h bySeq) Swap(i, j int) { swap(h, i, j) }

// Push appends x, an *item, for container/heap.
func (h *bySeq) Push(x any) { push((*[]*item)(h), x) }

// Pop removes and returns the last item, for container/heap.
func (h *bySeq) Pop() any { return pop((*[]*item)(h)) }

// byDue is a heap of items in the order of their due time.
type byDue []*item

func (h byDue) Len() int { return len(h) }

// Less orders items by due time, then by arrival.
func (h byDue) Less(i, j int) bool {
	if c := h[i].due.Compare(h[j].due); c != 0 {
		return c < 0
	}
	return h[i].seq < h[j].seq
}
func (h byDue) Swap(i, j int) { swap(h, i, j) }

// Push appends x, an *item, for container/heap.
func (h *byDue) Push(x any) { push((*[]*item)(h), x) }

// Pop removes and returns the last item, for container/heap.
func (h *byDue) Pop() any { return pop((*[]*item)(h)) }

// swap swaps two items of a heap and updates their indexes. It serves [heap.Interface].
func swap(h []*item, i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// push appends x, which must be an *item, to the slice of a heap and sets its index. It serves
// [heap.Interface]: container/heap restores the order.
func push(h *[]*item, x any) {
	it := x.(*item)
	it.index = len(*h)
	*h = append(*h, it)
}

// pop removes and returns the last item of the slice of a heap, and sets its index to -1. It serves
// [heap.Interface]: container/heap moves the first item to the end before.
func pop(h *[]*item) *item {
	last := len(*h) - 1
	it := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	it.index = -1
	return it
}
