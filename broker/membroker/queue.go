package membroker

import (
	"container/heap"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/floor"
	"github.com/swarmiji/swarmiji/internal/turns"
)

// level holds the ready messages of one priority level. Those in returned come before those in
// ring. A level of a fair queue has them all in keys.
type level struct {
	bound    int // the highest priority number in it; the last level has no limit
	ring     ring
	returned bySeq
	keys     *turns.Turns[*item] // nil: the queue is not fair
}

// queue is one queue of a Server. mu guards all its fields. Its methods must be called with mu held
// unless their comment says otherwise.
type queue struct {
	name string
	s    *Server

	mu          sync.Mutex
	levels      []level // at least one, most urgent first
	declared    bool    // by Declare: the levels and fair do not change any more
	warned      bool    // a later declaration with other settings was logged
	fair        bool    // each level has keys
	load        *load   // nil: no subscription has had bounds
	seq         uint64
	ready       int              // items in the levels
	delayed     int              // items that wait for their time
	held        int              // delivered items
	byID        map[string]*item // the newest item of each ID
	dead        []*letter        // oldest first
	deadDropped int              // number of letters that the limits have removed
	// subscriptions with a waiting receiver and a free place in their prefetch
	eager chain[subscription, *subscription]
	room  chain[waiter, *waiter] // publishers that wait for room
	// waiters that are woken when mu is free, last first
	wake *waiter
}

// newQueue returns an empty queue with one level.
func newQueue(s *Server, name string) *queue {
	return &queue{name: name, s: s, levels: make([]level, 1), byID: make(map[string]*item)}
}

// unlock frees mu and then wakes the waiters that got a message or room. A goroutine that is woken
// earlier would block on mu. Call it with q.mu held.
func (q *queue) unlock() {
	w := q.wake
	q.wake = nil
	q.mu.Unlock()
	for w != nil {
		next := w.woken // read before the send, because its goroutine may reuse the waiter afterwards
		w.woken = nil
		w.ch <- struct{}{}
		w = next
	}
}

// wakeLater adds w to the waiters that the next unlock wakes. Call it with q.mu held.
func (q *queue) wakeLater(w *waiter) {
	w.woken = q.wake
	q.wake = w
}

// full reports whether the queue accepts no more messages: its ready and delayed messages, without
// the delivered ones, have reached MaxQueue. Call it with q.mu held.
func (q *queue) full() bool { return q.s.maxQueue > 0 && q.ready+q.delayed >= q.s.maxQueue }

// put stores m for delivery at the time at; now is the present time. If the queue has the same (ID,
// Generation) or a later Generation, it does nothing. An earlier Generation that waits is replaced.
// The caller must call dispatch afterwards. Call it with q.mu held.
func (q *queue) put(m *broker.Message, at, now time.Time) {
	first := q.byID[m.ID] // a message without an ID is not in the map
	if first != nil {
		if first.supersedes(m) {
			return
		}
		q.dropWaiting(first)
		first = q.byID[m.ID]
	}
	q.insert(m, at, now, first)
}

// insert stores m for delivery at the time at; now is the present time. same is the first item with
// the same ID, or nil. Call it with q.mu held.
func (q *queue) insert(m *broker.Message, at, now time.Time, same *item) {
	it := &item{m: m, q: q, same: same, index: -1}
	if same != nil {
		same.newer = true
	}
	if m.ID != "" {
		q.byID[m.ID] = it
	}
	if !at.After(now) {
		q.append(it, now)
	} else {
		q.delay(it, at)
	}
}

// supersedes reports whether the item has the Generation of m or a later one. It also checks the
// items that follow it in the list of its ID. Call it with the queue's mutex held.
func (it *item) supersedes(m *broker.Message) bool {
	for ; it != nil; it = it.same {
		if it.m.Generation >= m.Generation {
			return true
		}
	}
	return false
}

// dropWaiting drops the item and those with the same ID that follow it in the list of the ID,
// except items that a consumer holds. Call it with q.mu held.
func (q *queue) dropWaiting(it *item) {
	for it != nil {
		next := it.same // drop removes it from the list
		if it.place != held {
			q.drop(it)
		}
		it = next
	}
}

// append makes the item ready at the end of its level, with a new seq, since the time now. In a
// fair queue it is at the end of its key. It wakes no receiver. Call it with q.mu held.
func (q *queue) append(it *item, now time.Time) {
	it.level = q.levelOf(it.m.Priority)
	it.seq = q.seq
	it.since = now.UnixNano()
	q.seq++
	it.place = ready
	q.ready++
	if q.fair {
		it.entry = q.levels[it.level].keys.Push(it.m.Key, it.m.Weight, it.seq, it)
		return
	}
	q.levels[it.level].ring.push(it)
}

// giveBack makes a delivered item ready again, in front of later messages of its level. In a fair
// queue it is in front of its key, whose turn is refunded. It wakes no receiver. Call it with q.mu
// held.
func (q *queue) giveBack(it *item) {
	it.place = returned
	q.ready++
	switch l := &q.levels[it.level]; {
	case !q.fair:
		heap.Push(&l.returned, it)
	case it.entry == nil: // delivered before the queue became fair
		it.entry = l.keys.Push(it.m.Key, it.m.Weight, it.seq, it)
	default:
		l.keys.Return(it.entry)
	}
}

// delay makes the item a delayed one and adds it to the server's clock. Call it with q.mu held.
func (q *queue) delay(it *item, at time.Time) {
	it.place = delayed
	it.due = at
	q.delayed++
	q.s.clock.add(it)
}

// makeReady makes a delayed item ready at the end of its level and gives ready messages to waiting
// receivers. It does nothing if the item was removed or got another time than at. Call it without
// q.mu, which it takes.
func (q *queue) makeReady(it *item, at time.Time) {
	q.mu.Lock()
	if it.place == delayed && it.due.Equal(at) {
		q.delayed--
		q.append(it, time.Now())
		q.dispatch()
	}
	q.unlock()
}

// levelOf returns the index of the first level whose bound is at least p, or of the last level.
// Call it with q.mu held.
func (q *queue) levelOf(p int) uint8 {
	last := len(q.levels) - 1
	for i := range last {
		if p <= q.levels[i].bound {
			return uint8(i)
		}
	}
	return uint8(last)
}

// next removes and returns the next ready item for s, or returns nil. The floor of s decides the
// order of the levels. Within a level a returned item comes before the others. It does not change
// the item's field place: the caller must call deliver for the item. Call it with q.mu held.
func (q *queue) next(s *subscription) *item {
	switch {
	case q.ready == 0:
		return nil
	case q.load != nil:
		return q.load.next(&s.floor, s.bounds)
	default:
		return q.pop(&s.floor)
	}
}

// pop is next for a subscription without bounds, whose floor is f. Call it with q.mu held.
func (q *queue) pop(f *floor.Floor) *item {
	for i := range q.levels {
		at := f.At(i, len(q.levels))
		if it := q.levels[at].pop(); it != nil {
			f.Took(at)
			q.ready--
			return it
		}
	}
	return nil
}

// pop removes and returns the next item of the level, or returns nil. Call it with the queue's
// mutex held.
func (l *level) pop() *item {
	switch {
	case l.keys != nil:
		if e := l.keys.Pop(); e != nil {
			return e.Item
		}
		return nil
	case len(l.returned) > 0:
		return heap.Pop(&l.returned).(*item)
	default:
		return l.ring.pop()
	}
}

// remove removes a waiting item from its level or the clock, and lowers the queue's counter. Its
// ID stays in q.byID. Call it with q.mu held.
func (q *queue) remove(it *item) {
	switch it.place {
	case ready, returned:
		q.ready--
		switch l := &q.levels[it.level]; {
		case q.fair:
			l.keys.Remove(it.entry)
		case it.place == ready:
			l.ring.remove(it)
		default:
			heap.Remove(&l.returned, it.index)
		}
	case delayed:
		q.s.clock.remove(it)
		q.delayed--
	}
	it.place = gone
}

// drop removes a waiting item for good, and lets a publisher use its room. Call it with q.mu held.
func (q *queue) drop(it *item) {
	q.remove(it)
	q.forget(it)
	q.admit()
}

// forget marks an item, which is in no ring, heap or clock, as gone, and removes it from the list
// of its ID. Call it with q.mu held.
func (q *queue) forget(it *item) {
	it.place = gone
	if it.m.ID == "" {
		return
	}
	if it.newer {
		p := q.byID[it.m.ID]
		for p.same != it {
			p = p.same
		}
		p.same = it.same
	} else if it.same == nil {
		delete(q.byID, it.m.ID)
	} else {
		it.same.newer = false
		q.byID[it.m.ID] = it.same
	}
	it.same = nil
}

// waiting returns the waiting item with the id that has the highest Generation, or nil. Call it
// with q.mu held.
func (q *queue) waiting(id string) *item {
	var found *item
	for it := q.byID[id]; it != nil; it = it.same {
		if it.place != held && (found == nil || it.m.Generation > found.m.Generation) {
			found = it
		}
	}
	return found
}

// dispatch gives ready items to waiting receivers, as far as their prefetch has room.
// Subscriptions take turns. The receivers wake at the next unlock. Call it with q.mu held.
func (q *queue) dispatch() {
	for s := q.eager.head; s != nil && q.ready > 0; {
		it := q.next(s)
		if it == nil { // its bounds allow nothing; those of the others may
			s = q.eagerWithOthers(s)
			continue
		}
		w := s.waiters.head
		s.waiters.remove(w)
		w.d = q.deliver(it, s)
		q.wakeLater(w)
		q.eager.remove(s) // to the end of the chain
		s.isEager = false
		s.refresh()
		s = q.eager.head
	}
}

// eagerWithOthers returns the next member of q.eager after s whose bounds differ from those of s,
// or nil. Call it with q.mu held.
func (q *queue) eagerWithOthers(s *subscription) *subscription {
	for next := s.link.next; next != nil; next = next.link.next {
		if next.bounds != s.bounds {
			return next
		}
	}
	return nil
}

// deliver makes the item, which the caller has taken with next, a delivery of s and returns it. It
// raises the item's number of deliveries, and the numbers of unsettled messages of s and the queue.
// The item no longer fills the queue, so a waiting publisher may continue. Call it with q.mu held.
func (q *queue) deliver(it *item, s *subscription) *delivery {
	d := &it.first
	if d.item != nil {
		d = new(delivery)
	}
	it.place = held
	it.count++
	d.item, d.m, d.sub, d.lost, d.count = it, it.m, s, s.lost, it.count
	s.held.push(d)
	s.unsettled++
	q.held++
	if q.load != nil {
		q.load.take(it)
	}
	q.admit()
	return d
}

// undeliver counts an item that is delivered no more. Call it with q.mu held.
func (q *queue) undeliver(it *item) {
	q.held--
	if q.load != nil {
		q.load.free(it)
	}
}

// admit lets the first waiting publisher continue, at the next unlock, if the queue is not full.
// It lets one publisher continue with each call. Call it with q.mu held.
func (q *queue) admit() {
	if w := q.room.head; w != nil && !q.full() {
		q.room.remove(w)
		w.admitted = true
		q.wakeLater(w)
	}
}

// setLevels replaces the queue's levels by levels with the given bounds, or by one level if
// bounds is empty. It makes the queue fair or not. It moves all ready items to their new level, in
// their order. The queue must not be fair yet. Call it with q.mu held.
func (q *queue) setLevels(bounds []int, fair bool) {
	old := q.levels
	q.levels = make([]level, max(1, len(bounds)))
	for i, b := range bounds {
		q.levels[i].bound = b
	}
	if q.fair = fair; fair {
		q.makeFair(old)
		return
	}
	for i := range old {
		for _, it := range old[i].returned {
			it.level = q.levelOf(it.m.Priority)
			heap.Push(&q.levels[it.level].returned, it)
		}
		for it := range old[i].ring.all() {
			it.level = q.levelOf(it.m.Priority)
			q.levels[it.level].ring.push(it)
		}
	}
}
