package memschedule

import (
	"bytes"
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
)

// table holds one schedule, shared by all its views. Each method is one atomic step. Methods take
// t.mu unless their comment says otherwise.
//
// A tick is one run of an entry. A claim reserves it for an owner until its lease ends; then the
// claim has expired, and another owner may take it over.
type table struct {
	now func() time.Time

	mu       sync.Mutex
	entries  map[string]*entry
	groups   map[string]int64 // their revisions
	ids      []string         // sorted, for list; nil: not yet made
	dues     dueHeap
	added    uint64
	watchers map[int]func()
	watched  int
}

// entry is one entry of the schedule with its items in the heap of due times.
type entry struct {
	schedule.Entry            // Next equals next.at
	next           *dueItem   // nil: no due time
	claims         []*dueItem // valid and expired claims, usually few
}

// dueItem is one element of the heap of due times: an entry at its due time, or a claimed tick at
// the end of its lease.
type dueItem struct {
	entry *entry
	at    time.Time
	order uint64 // orders items of the same time
	index int    // in the heap

	due   time.Time // instant of the claimed tick; zero: this item is the entry's own due time
	owner string
}

// newTable returns an empty schedule with the clock now.
func newTable(now func() time.Time) *table {
	return &table{now: now, entries: make(map[string]*entry), groups: make(map[string]int64), watchers: make(map[int]func())}
}

// milli returns t in UTC, rounded down to milliseconds.
func milli(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()).UTC() }

// clock returns the store's current time, rounded down to milliseconds.
func (t *table) clock() time.Time { return milli(t.now()) }

// add adds checked entries, with copies of their payloads, and returns for each whether it is new.
// An existing entry that is unscheduled gets its Next, with the result false. It takes t.mu. If it
// added or repaired an entry, it wakes the watchers after that, without t.mu.
func (t *table) add(entries []schedule.Entry) []bool {
	t.mu.Lock()
	added := make([]bool, len(entries))
	changed := false
	for i := range entries {
		if e, taken := t.entries[entries[i].ID]; taken {
			changed = t.repair(e, entries[i].Next) || changed
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

// unscheduled reports whether e would never become due: it has no due time and no claim and is not
// paused. Call it with t.mu held.
func (e *entry) unscheduled() bool { return e.next == nil && len(e.claims) == 0 && !e.Paused }

// repair sets the due time of e to next if e is unscheduled, and reports whether it did so. A nil e
// gives false. It wakes no watchers. Call it with t.mu held.
func (t *table) repair(e *entry, next time.Time) bool {
	if e == nil || !e.unscheduled() {
		return false
	}
	t.schedule(e, next)
	return true
}

// allUnscheduled returns copies of all entries without a due time, claim or pause. It takes t.mu.
func (t *table) allUnscheduled() []schedule.Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []schedule.Entry
	for _, e := range t.entries {
		if e.unscheduled() {
			found = append(found, e.clone())
		}
	}
	return found
}

// repairOne sets the due time of the entry with this id to next, and wakes the watchers if it did
// so. It returns false if the entry does not exist, has a due time or a claim, or is paused. It
// takes t.mu, but not while it wakes the watchers.
func (t *table) repairOne(id string, next time.Time) bool {
	t.mu.Lock()
	repaired := t.repair(t.entries[id], next)
	t.mu.Unlock()
	if repaired {
		t.wake()
	}
	return repaired
}

// schedule sets the due time of e to at, in place of an earlier one; a zero at only removes it. A
// paused entry gets no due time. Call it with t.mu held.
func (t *table) schedule(e *entry, at time.Time) {
	if e.next != nil {
		heap.Remove(&t.dues, e.next.index)
		e.next, e.Next = nil, time.Time{}
	}
	if at.IsZero() || e.Paused {
		return
	}
	e.Next = milli(at)
	e.next = t.put(&dueItem{entry: e, at: e.Next})
}

// put adds an item to the heap, behind the items of the same time, and returns it. Call it with
// t.mu held.
func (t *table) put(p *dueItem) *dueItem {
	t.added++
	p.order = t.added
	heap.Push(&t.dues, p)
	return p
}

// due returns the Batch of up to most due ticks, in the order in which they became due. It leaves
// them in the heap. b.Next is the first time in the heap after now; b.More is never set. It takes
// t.mu.
func (t *table) due(most int) schedule.Batch {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := schedule.Batch{Now: t.clock()}
	var taken []*dueItem
	for len(t.dues) > 0 && len(b.Ticks) < most && !t.dues[0].at.After(b.Now) {
		p, _ := heap.Pop(&t.dues).(*dueItem)
		taken = append(taken, p)
		b.Ticks = append(b.Ticks, p.tick())
	}
	b.Next = t.dues.after(b.Now)
	for _, p := range taken {
		heap.Push(&t.dues, p)
	}
	return b
}

// tick returns the tick of an item, with copies of the entry's bytes. Due is the instant of a
// claimed tick, or else the entry's due time. Owner is "" unless the item is a claim. Call it with
// t.mu held.
func (p *dueItem) tick() schedule.Tick {
	k := schedule.Tick{Entry: p.entry.clone(), Due: p.due, Owner: p.owner}
	if p.due.IsZero() {
		k.Due = p.at
	}
	return k
}

// clone returns a copy of the entry that the caller may change. Call it with t.mu held.
func (e *entry) clone() schedule.Entry {
	c := e.Entry
	c.Payload, c.State, c.Runs = slices.Clone(c.Payload), slices.Clone(c.State), slices.Clone(c.Runs)
	return c
}

// claimed returns the claim on the tick of an instant, valid or expired; nil if the tick has no
// claim. Call it with t.mu held.
func (e *entry) claimed(due time.Time) *dueItem {
	for _, p := range e.claims {
		if p.due.Equal(due) {
			return p
		}
	}
	return nil
}

// claim claims one tick as Store.Claim describes, and reports whether the owner holds it now. The
// claim ends lease from now. It gives the entry its next due time and, with c.Remember, adds the
// tick to its Last and Runs. It takes t.mu.
//
//   - The owner's own claim is renewed, expired or not, and nothing else changes.
//   - An expired claim of c.Owner is taken over. The entry gets c.Next only if it has no due time.
//   - A tick without a claim must be the entry's due time, and c.Owner must be "".
//
// In all other cases, also if the entry does not exist, it returns false and changes nothing.
func (t *table) claim(owner string, lease time.Duration, c *schedule.Claim) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[c.ID]
	if e == nil {
		return false
	}
	now := t.clock()
	if held := e.claimed(c.Due); held != nil {
		if held.owner == owner { // a repeated call
			held.at = now.Add(lease)
			heap.Fix(&t.dues, held.index)
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
	e.claims = append(e.claims, t.put(&dueItem{entry: e, at: now.Add(lease), due: c.Due, owner: owner}))
	if c.Remember {
		e.Last, e.Runs = c.Due, schedule.AddRun(e.Runs, c.Due)
	}
	return true
}

// unclaim removes a claim from the heap and from its entry. Call it with t.mu held.
func (t *table) unclaim(p *dueItem) {
	heap.Remove(&t.dues, p.index)
	p.entry.claims = slices.DeleteFunc(p.entry.claims, func(q *dueItem) bool { return q == p })
}

// held returns the owner's claim on a tick, valid or expired; nil if the owner has no claim on it.
// Call it with t.mu held.
func (t *table) held(owner string, k *schedule.Tick) *dueItem {
	if e := t.entries[k.ID]; e != nil {
		if p := e.claimed(k.Due); p != nil && p.owner == owner {
			return p
		}
	}
	return nil
}

// renew sets the end of the owner's claim on a tick to now plus lease, also if the claim has
// expired, and returns true. Returns false, and changes nothing, if the owner does not hold the
// claim. With lease 0 others can claim the tick at once, and the watchers are called; until another
// owner claims the tick, the claim stays with this one. It takes t.mu, but not while it calls the
// watchers.
func (t *table) renew(owner string, lease time.Duration, k *schedule.Tick) bool {
	t.mu.Lock()
	p := t.held(owner, k)
	if p != nil {
		p.at = t.clock().Add(lease)
		heap.Fix(&t.dues, p.index)
	}
	t.mu.Unlock()
	if p != nil && lease == 0 {
		t.wake()
	}
	return p != nil
}

// done ends the owner's claim on a tick. It stores f.State in the entry that f.StateOf names (else
// in the tick's entry), if that exists; an empty State deletes the stored one. With f.Remove it
// deletes the tick's entry unless that has a due time, another claim or another payload. It reports
// whether the owner held the claim; otherwise it changes nothing. It takes t.mu.
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
	if f.Remove && p.entry.next == nil && len(p.entry.claims) == 0 && bytes.Equal(p.entry.Payload, f.Payload) {
		t.forget(f.ID)
	}
	return true
}

// remove deletes an entry with its due time and claims, and reports whether it existed. It takes
// t.mu.
func (t *table) remove(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[id]
	if e == nil {
		return false
	}
	t.delete(e)
	return true
}

// delete deletes an entry with its due time and claims. Call it with t.mu held.
func (t *table) delete(e *entry) {
	t.schedule(e, time.Time{})
	for _, p := range slices.Clone(e.claims) {
		t.unclaim(p)
	}
	t.forget(e.ID)
}

// forget deletes an entry that has no items in the heap. Call it with t.mu held.
func (t *table) forget(id string) {
	delete(t.entries, id)
	t.ids = nil
}

// get returns a copy of an entry, or [schedule.ErrNotFound]. It takes t.mu.
func (t *table) get(id string) (schedule.Entry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[id]; e != nil {
		return e.clone(), nil
	}
	return schedule.Entry{}, schedule.ErrNotFound
}

// list returns copies of up to limit entries whose ids come after cursor, sorted by id. It also
// returns the cursor of the next page; "" after the last page. It takes t.mu.
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
		page = append(page, t.entries[id].clone())
	}
	if from+limit >= len(ids) {
		return page, ""
	}
	return page, ids[from+limit-1]
}

// pause removes the due time of an entry and marks it as paused. Claims on its ticks stay. A paused
// entry stays as it is. Returns [schedule.ErrNotFound] if the entry does not exist. It takes t.mu.
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

// resume ends the pause of an entry, sets its due time and wakes the watchers; a zero next sets no
// due time. An entry that is not paused stays as it is, but the watchers are woken. Returns
// [schedule.ErrNotFound] if the entry does not exist. It takes t.mu, but not while it wakes the
// watchers.
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

// watch registers a function that wake calls. stop removes it; a call in progress may still follow.
// Both take t.mu.
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

// wake calls all watchers on the calling goroutine. It takes t.mu to read them. Call it without
// t.mu held, because a watcher may call a method of t.
func (t *table) wake() {
	t.mu.Lock()
	calls := slices.Collect(maps.Values(t.watchers))
	t.mu.Unlock()
	for _, call := range calls {
		call()
	}
}

// dueHeap is a heap sorted by time, then by order.
type dueHeap []*dueItem

// after returns the earliest time in the heap after now, or zero. It changes nothing. It descends
// from the due items at the top of the heap until each branch has an item that is not due. Call it
// with t.mu held.
func (h dueHeap) after(now time.Time) time.Time {
	var next time.Time
	pending := []int{0}
	for len(pending) > 0 {
		i := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		switch {
		case i >= len(h) || !next.IsZero() && !h[i].at.Before(next):
		case h[i].at.After(now):
			next = h[i].at
		default:
			pending = append(pending, 2*i+1, 2*i+2)
		}
	}
	return next
}

// Len returns the number of items. The package heap calls it.
func (h dueHeap) Len() int { return len(h) }

// Less reports whether item i comes before item j: items are sorted by time, and items of the same
// time by their order. The package heap calls it.
func (h dueHeap) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].order < h[j].order
	}
	return h[i].at.Before(h[j].at)
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
