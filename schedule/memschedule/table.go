package memschedule

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
)

// table is a schedule. Each method is one step for all who see it.
type table struct {
	now func() time.Time

	mu       sync.Mutex
	entries  map[string]*entry
	ids      []string // sorted, for List; nil: to be made anew
	places   places
	added    uint64
	watchers map[int]func()
	watched  int
}

type entry struct {
	schedule.Entry          // its Next is that of next
	next           *place   // nil: it has no time
	claims         []*place // few at a time
}

// place is a moment at which something will be due: an entry, or a tick whose claim then has run out.
type place struct {
	entry *entry
	at    time.Time
	order uint64 // among those of one moment
	index int    // in the heap

	due   time.Time // of a claim: the tick's instant. Zero: it is the entry's own place
	owner string
}

func newTable(now func() time.Time) *table {
	return &table{now: now, entries: make(map[string]*entry), watchers: make(map[int]func())}
}

func milli(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()).UTC() }

// clock is the store's time, to which all instants are compared in milliseconds.
func (t *table) clock() time.Time { return milli(t.now()) }

func (t *table) add(entries []schedule.Entry) []bool {
	t.mu.Lock()
	added := make([]bool, len(entries))
	changed := false
	for i := range entries {
		if e, taken := t.entries[entries[i].ID]; taken {
			changed = t.mend(e, entries[i].Next) || changed
			continue
		}
		e := &entry{Entry: schedule.Entry{ID: entries[i].ID, Payload: slices.Clone(entries[i].Payload)}}
		t.entries[e.ID] = e
		t.ids = nil
		t.schedule(e, entries[i].Next)
		added[i], changed = true, true
	}
	t.mu.Unlock()
	if changed {
		t.wake()
	}
	return added
}

// astray reports whether nothing would ever make e due.
func (e *entry) astray() bool { return e.next == nil && len(e.claims) == 0 && !e.Paused }

// mend gives an entry that is astray a time, and reports whether it was; the lock is held.
func (t *table) mend(e *entry, next time.Time) bool {
	if e == nil || !e.astray() {
		return false
	}
	t.schedule(e, next)
	return true
}

func (t *table) allAstray() []schedule.Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []schedule.Entry
	for _, e := range t.entries {
		if e.astray() {
			found = append(found, e.copied())
		}
	}
	return found
}

func (t *table) mendOne(id string, next time.Time) bool {
	t.mu.Lock()
	mended := t.mend(t.entries[id], next)
	t.mu.Unlock()
	if mended {
		t.wake()
	}
	return mended
}

// schedule gives e its next time; zero: none.
func (t *table) schedule(e *entry, at time.Time) {
	if e.next != nil {
		heap.Remove(&t.places, e.next.index)
		e.next, e.Next = nil, time.Time{}
	}
	if at.IsZero() || e.Paused {
		return
	}
	e.Next = milli(at)
	e.next = t.put(&place{entry: e, at: e.Next})
}

func (t *table) put(p *place) *place {
	t.added++
	p.order = t.added
	heap.Push(&t.places, p)
	return p
}

func (t *table) due(most int) schedule.Batch {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := schedule.Batch{Now: t.clock()}
	var taken []*place
	for len(t.places) > 0 && len(b.Ticks) < most && !t.places[0].at.After(b.Now) {
		p, _ := heap.Pop(&t.places).(*place)
		taken = append(taken, p)
		b.Ticks = append(b.Ticks, p.tick())
	}
	b.Next = t.places.after(b.Now)
	for _, p := range taken {
		heap.Push(&t.places, p)
	}
	return b
}

func (p *place) tick() schedule.Tick {
	k := schedule.Tick{Entry: p.entry.copied(), Due: p.due, Owner: p.owner}
	if p.due.IsZero() {
		k.Due = p.at
	}
	return k
}

// copied returns what belongs to the caller.
func (e *entry) copied() schedule.Entry {
	c := e.Entry
	c.Payload, c.State = slices.Clone(c.Payload), slices.Clone(c.State)
	return c
}

func (e *entry) claimed(due time.Time) *place {
	for _, p := range e.claims {
		if p.due.Equal(due) {
			return p
		}
	}
	return nil
}

func (t *table) claim(owner string, lease time.Duration, c *schedule.Claim) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[c.ID]
	if e == nil {
		return false
	}
	now := t.clock()
	if held := e.claimed(c.Due); held != nil {
		if held.owner == owner { // asked for again
			held.at = now.Add(lease)
			heap.Fix(&t.places, held.index)
			return true
		}
		if held.owner != c.Owner || held.at.After(now) {
			return false
		}
		t.unclaim(held)
		if e.next == nil {
			t.schedule(e, c.Next)
		}
	} else {
		if c.Owner != "" || e.next == nil || !e.next.at.Equal(c.Due) {
			return false
		}
		t.schedule(e, c.Next)
	}
	e.claims = append(e.claims, t.put(&place{entry: e, at: now.Add(lease), due: c.Due, owner: owner}))
	if c.Remember {
		e.Last = c.Due
	}
	return true
}

func (t *table) unclaim(p *place) {
	heap.Remove(&t.places, p.index)
	p.entry.claims = slices.DeleteFunc(p.entry.claims, func(q *place) bool { return q == p })
}

// held returns the owner's claim on a tick, or nil.
func (t *table) held(owner string, k *schedule.Tick) *place {
	if e := t.entries[k.ID]; e != nil {
		if p := e.claimed(k.Due); p != nil && p.owner == owner {
			return p
		}
	}
	return nil
}

func (t *table) renew(owner string, lease time.Duration, k *schedule.Tick) bool {
	t.mu.Lock()
	p := t.held(owner, k)
	if p != nil {
		p.at = t.clock().Add(lease)
		heap.Fix(&t.places, p.index)
	}
	t.mu.Unlock()
	if p != nil && lease == 0 {
		t.wake()
	}
	return p != nil
}

func (t *table) done(owner string, f *schedule.Finish) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.held(owner, &f.Tick)
	if p == nil {
		return false
	}
	t.unclaim(p)
	if of := t.entries[cmp.Or(f.StateOf, f.ID)]; of != nil && f.State != nil {
		of.State = nil
		if len(f.State) > 0 {
			of.State = slices.Clone(f.State)
		}
	}
	if f.Remove && p.entry.next == nil && len(p.entry.claims) == 0 {
		t.forget(f.ID)
	}
	return true
}

func (t *table) remove(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[id]
	if e == nil {
		return false
	}
	t.schedule(e, time.Time{})
	for _, p := range slices.Clone(e.claims) {
		t.unclaim(p)
	}
	t.forget(id)
	return true
}

func (t *table) forget(id string) {
	delete(t.entries, id)
	t.ids = nil
}

func (t *table) get(id string) (schedule.Entry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[id]; e != nil {
		return e.copied(), nil
	}
	return schedule.Entry{}, schedule.ErrNotFound
}

func (t *table) list(cursor string, limit int) ([]schedule.Entry, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ids == nil {
		t.ids = slices.Sorted(maps.Keys(t.entries))
	}
	ids := t.ids
	from, found := slices.BinarySearch(ids, cursor)
	if found {
		from++
	}
	var page []schedule.Entry
	for _, id := range ids[from:min(from+limit, len(ids))] {
		page = append(page, t.entries[id].copied())
	}
	if from+limit >= len(ids) {
		return page, ""
	}
	return page, ids[from+limit-1]
}

func (t *table) pause(id string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[id]
	if e == nil {
		return schedule.ErrNotFound
	}
	t.schedule(e, time.Time{})
	e.Paused = true
	return nil
}

func (t *table) resume(id string, next time.Time) error {
	t.mu.Lock()
	e := t.entries[id]
	if e != nil && e.Paused {
		e.Paused = false
		t.schedule(e, next)
	}
	t.mu.Unlock()
	if e == nil {
		return schedule.ErrNotFound
	}
	t.wake()
	return nil
}

func (t *table) watch(wake func()) (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watched++
	n := t.watched
	t.watchers[n] = wake
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.watchers, n)
	}
}

// wake calls the watchers, outside of the lock, which they may want.
func (t *table) wake() {
	t.mu.Lock()
	calls := slices.Collect(maps.Values(t.watchers))
	t.mu.Unlock()
	for _, call := range calls {
		call()
	}
}

// places is a heap by time, then by order.
type places []*place

// after returns the first moment after now, zero if there is none. Those that are due lie in front, and their children are looked at
// until each branch has one that is not.
func (h places) after(now time.Time) time.Time {
	var next time.Time
	look := []int{0}
	for len(look) > 0 {
		i := look[len(look)-1]
		look = look[:len(look)-1]
		switch {
		case i >= len(h) || !next.IsZero() && !h[i].at.Before(next):
		case h[i].at.After(now):
			next = h[i].at
		default:
			look = append(look, 2*i+1, 2*i+2)
		}
	}
	return next
}

func (h places) Len() int { return len(h) }

func (h places) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].order < h[j].order
	}
	return h[i].at.Before(h[j].at)
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
