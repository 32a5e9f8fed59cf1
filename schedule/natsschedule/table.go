package natsschedule

import (
	"container/heap"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
)

// table is a copy of the schedule. Its owner locks.
type table struct {
	entries map[string]*known
	ids     []string // sorted; nil: to be made anew
	places  places
	order   uint64
}

// known is an entry with the sequence of its message.
type known struct {
	rec    *record // Gone: removed, and kept until the stream tells it as well
	seq    uint64
	places []*place
}

// place is a moment at which something will be due: an entry, or a tick whose claim then has run out.
type place struct {
	of    *known
	at    int64
	order uint64
	index int // in the heap
	due   int64
	owner string
}

func newTable() *table { return &table{entries: make(map[string]*known)} }

// apply takes a message in, unless a newer one is known. It reports whether something is due earlier than before. told is for
// what the stream has told: then a removed entry can be forgotten.
func (t *table) apply(r *record, seq uint64, told bool) (sooner bool) {
	k := t.entries[r.ID]
	if k != nil && (k.seq > seq || k.seq == seq && (!told || !r.Gone)) {
		return false
	}
	before := int64(math.MaxInt64)
	if k != nil {
		for _, p := range k.places {
			before = min(before, p.at)
			heap.Remove(&t.places, p.index)
		}
	}
	switch {
	case r.Gone && told:
		delete(t.entries, r.ID)
		t.ids = nil
		return false
	case k == nil:
		k = &known{}
		t.entries[r.ID] = k
		t.ids = nil
	case k.rec.Gone != r.Gone:
		t.ids = nil
	}
	k.rec, k.seq, k.places = r, seq, nil
	if r.Gone {
		return false
	}
	if r.Timed {
		t.put(&place{of: k, at: r.Next, due: r.Next})
	}
	for _, c := range r.Claims {
		t.put(&place{of: k, at: c.Until, due: c.Due, owner: c.Owner})
	}
	for _, p := range k.places {
		sooner = sooner || p.at < before
	}
	return sooner
}

func (t *table) put(p *place) {
	t.order++
	p.order = t.order
	p.of.places = append(p.of.places, p)
	heap.Push(&t.places, p)
}

// get returns an entry's record and sequence; nil: there is none.
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

// due answers Due at a time.
func (t *table) due(now int64, most int) schedule.Batch {
	b := schedule.Batch{Now: moment(now)}
	var taken []*place
	for len(t.places) > 0 && len(b.Ticks) < most && t.places[0].at <= now {
		p, _ := heap.Pop(&t.places).(*place)
		taken = append(taken, p)
		b.Ticks = append(b.Ticks, schedule.Tick{Entry: p.of.rec.entry(), Due: moment(p.due), Owner: p.owner})
	}
	b.Next = t.places.after(now)
	for _, p := range taken {
		heap.Push(&t.places, p)
	}
	return b
}

// list returns a page of entries, in the order of their ids.
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

// places is a heap by time, then by order.
type places []*place

// after returns the first moment after now, zero if there is none: it looks below those that are due until each branch has one
// that is not.
func (h places) after(now int64) time.Time {
	next := int64(math.MaxInt64)
	look := []int{0}
	for len(look) > 0 {
		i := look[len(look)-1]
		look = look[:len(look)-1]
		switch {
		case i >= len(h) || h[i].at >= next:
		case h[i].at > now:
			next = h[i].at
		default:
			look = append(look, 2*i+1, 2*i+2)
		}
	}
	if next == math.MaxInt64 {
		return time.Time{}
	}
	return moment(next)
}

func (h places) Len() int { return len(h) }

func (h places) Less(i, j int) bool {
	if h[i].at == h[j].at {
		return h[i].order < h[j].order
	}
	return h[i].at < h[j].at
}

func (h places) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *places) Push(x any) {
	p, _ := x.(*place)
	p.index = len(*h)
	*h = append(*h, p)
}

// Pop implements heap.Interface.
func (h *places) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return p
}
