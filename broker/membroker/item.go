package membroker

import (
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// place is where an item is.
type place uint8

const (
	gone     place = iota // acknowledged, buried, removed or replaced
	ready                 // in the ring of its level
	returned              // in the heap of its level: given back, before everything in the ring
	delayed               // waiting for its time
	held                  // handed out and not settled
)

// item is a message in a queue. Its fields are guarded by the queue's mutex, but for index and due of a delayed one.
type item struct {
	m     *broker.Message
	q     *queue
	same  *item     // another item of the same ID in the same queue
	seq   uint64    // order of arrival in the queue
	pos   uint64    // in the ring
	index int       // in the heap; -1: in none
	due   time.Time // of a delayed item; it does not change while the item is delayed
	count int32     // how often it was handed out
	level uint8
	place place
	first delivery // the delivery of the first hand-out, here to save an allocation
}

// bySeq is a heap of items in the order of their arrival.
type bySeq []*item

func (h bySeq) Len() int           { return len(h) }
func (h bySeq) Less(i, j int) bool { return h[i].seq < h[j].seq }
func (h bySeq) Swap(i, j int)      { swap(h, i, j) }
func (h *bySeq) Push(x any)        { push((*[]*item)(h), x) }
func (h *bySeq) Pop() any          { return pop((*[]*item)(h)) }

// byDue is a heap of items in the order of their time.
type byDue []*item

func (h byDue) Len() int { return len(h) }
func (h byDue) Less(i, j int) bool {
	if c := h[i].due.Compare(h[j].due); c != 0 {
		return c < 0
	}
	return h[i].seq < h[j].seq
}
func (h byDue) Swap(i, j int) { swap(h, i, j) }
func (h *byDue) Push(x any)   { push((*[]*item)(h), x) }
func (h *byDue) Pop() any     { return pop((*[]*item)(h)) }

func swap(h []*item, i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func push(h *[]*item, x any) {
	it := x.(*item)
	it.index = len(*h)
	*h = append(*h, it)
}

func pop(h *[]*item) *item {
	last := len(*h) - 1
	it := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	it.index = -1
	return it
}
