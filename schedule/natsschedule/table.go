package natsschedule

import (
	"container/heap"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
)

// table is the copy of a schedule in memory. It does no locking: call its methods with the Store's
// mu held. It holds entries; a claim on a tick, one run of an entry, reserves it for an owner until
// its lease ends.
type table struct {
	entries map[string]*cached
	groups  map[string]*group
	ids     []string // sorted, for list; nil: not yet made
	dues    dueHeap
	order   uint64
}

// cached is an entry with the sequence of its message and its items in the heap.
type cached struct {
	rec  *record // if Gone: removed, until the stream confirms it
	seq  uint64
	dues []*dueItem
}

// dueItem is one element of the heap of due times: an entry at its due time, or a claimed tick at
// the end of its lease.
type dueItem struct {
	of    *cached
	at    int64
	order uint64
	index int // in the heap
	due   int64
	owner string
}

// newTable returns an empty table.
func newTable() *table {
	return &table{entries: make(map[string]*cached), groups: make(map[string]*group)}
}

// apply puts a record into the table unless the table has a newer one, by the sequences of their
// messages. It reports whether something of the entry is due earlier than before. A removed record
// gives false. Call it with the Store's mu held.
//
// fromStream reports that the stream has sent the record. Then a removed entry is deleted from the
// table. Otherwise it is kept as removed, so that an older message does not add it again.
func (t *table) apply(r *record, seq uint64, fromStream bool) (sooner bool) {
	k := t.entries[r.ID]
	if k != nil && (k.seq > seq || k.seq == seq && (!fromStream || !r.Gone)) {
		return false
	}
	before := int64(math.MaxInt64)
	if k != nil {
		for _, p := range k.dues {
			before = min(before, p.at)
			heap.Remove(&t.dues, p.index)
		}
	}
	switch {
	case r.Gone && fromStream:
		delete(t.entries, r.ID)
		t.ids = nil
		return false
	case k == nil:
		k = &cached{}
		t.entries[r.ID] = k
		t.ids = nil
	case k.rec.Gone != r.Gone:
		t.ids = nil
	}
	k.rec, k.seq, k.dues = r, seq, nil
	if r.Gone {
		return false
	}
	if r.Timed {
		t.put(&dueItem{of: k, at: r.Next, due: r.Next})
	}
	for _, c := range r.Claims {
		t.put(&dueItem{of: k, at: c.Until, due: c.Due, owner: c.Owner})
	}
	for _, p := range k.dues {
		sooner = sooner || p.at < before
	}
	return sooner
}

// put adds an item to the heap, behind the items of the same time, and to its entry. Call it with
// the Store's mu held.
func (t *table) put(p *dueItem) {
	t.order++
	p.order = t.order
	p.of.dues = append(p.of.dues, p)
	heap.Push(&t.dues, p)
}

// get returns the record of an entry and the sequence of its message. The record is nil if the
// entry does not exist (sequence 0) or was removed. Do not change the record. Call it with the
// Store's mu held.
func (t *table) get(id string) (*record, uint64) {
	k := t.entries[id]
	switch {
	case k == nil:
		return nil, 0
	case k.rec.Gone:
		return nil, k.seq
	}
	return k.rec, k.seq
}

// due returns the Batch of up to most due ticks at the time now, in the order in which they became
// due. It leaves them in the table. b.Next is the first time in the heap after now. Call it with
// the Store's mu held.
func (t *table) due(now int64, most int) schedule.Batch {
	b := schedule.Batch{Now: moment(now)}
	var taken []*dueItem
	for len(t.dues) > 0 && len(b.Ticks) < most && t.dues[0].at <= now {
		p, _ := heap.Pop(&t.dues).(*dueItem)
		taken = append(taken, p)
		b.Ticks = append(b.Ticks, schedule.Tick{Entry: p.of.rec.entry(), Due: moment(p.due), Owner: p.owner})
	}
	b.Next = t.dues.after(now)
	for _, p := range taken {
		heap.Push(&t.dues, p)
	}
	return b
}

// list returns the entries of up to limit ids after cursor, sorted by id, and the cursor of the
// next page; "" after the last page. Removed entries are left out, so a page may be shorter. Call
// it with the Store's mu held.
func (t *table) list(cursor string, limit int) ([]schedule.Entry, string) {
	if t.ids == nil {
		t.ids = slices.Sorted(maps.Keys(t.entries))
	}
	from, found := slices.BinarySearch(t.ids, cursor)
	if found {
		from++
	}
	to := min(from+limit, len(t.ids))
	var page []schedule.Entry
	for _, id := range t.ids[from:to] {
		if r, _ := t.get(id); r != nil {
			page = append(page, r.entry())
		}
	}
	if to == len(t.ids) {
		return page, ""
	}
	return page, t.ids[to-1]
}

// dueHeap is a heap sorted by time, then by order.
type dueHeap []*dueItem

// after returns the earliest time in the heap after now, or zero. It changes nothing. It descends
// from the due items at the top of the heap until each branch has an item that is not due.
func (h dueHeap) after(now int64) time.Time {
	next := int64(math.MaxInt64)
	pending := []int{0}
	for len(pending) > 0 {
		i := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		switch {
		case i >= len(h) || h[i].at >= next:
		case h[i].at > now:
			next = h[i].at
		default:
			pending = append(pending, 2*i+1, 2*i+2)
		}
	}
	if next == math.MaxInt64 {
		return time.Time{}
	}
	return moment(next)
}

// Len returns the number of items. The package heap calls it.
func (h dueHeap) Len() int { return len(h) }

// Less reports whether item i comes before item j: items are sorted by time, and items of the same
// time by their order. The package heap calls it.
func (h dueHeap) Less(i, j int) bool {
	if h[i].at == h[j].at {
		return h[i].order < h[j].order
	}
	return h[i].at < h[j].at
}

// Swap exchanges two items and keeps their indexes up to date. The package heap calls it.
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push appends x, a *dueItem, to the slice and sets its index. Only heap.Push calls it, which then
// moves it to its position.
func (h *dueHeap) Push(x any) {
	p, _ := x.(*dueItem)
	p.index = len(*h)
	*h = append(*h, p)
}

// Pop removes the last item of the slice, without a change of its index, and returns it. Only
// heap.Pop and heap.Remove call it, which first move the item there.
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return p
}
