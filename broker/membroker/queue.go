package membroker

import (
	"container/heap"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// level is the messages of one priority level.
type level struct {
	bound    int // the largest priority in it; of the last level, any
	ring     ring
	returned bySeq
}

// queue is one queue of a Server. Everything in it is guarded by mu; the methods are called with mu held, unless they say
// otherwise.
type queue struct {
	name string
	s    *Server

	mu          sync.Mutex
	levels      []level // at least one, most urgent first
	declared    bool    // by Declare, so that the levels stay as they are
	warned      bool    // that it was declared otherwise since
	seq         uint64
	ready       int                                // items in rings and heaps of the levels
	delayed     int                                // items that wait for their time
	held        int                                // items handed out
	byID        map[string]*item                   // every item but those without an ID
	dead        []*letter                          // oldest first
	deadDropped int                                // letters that the bounds have removed
	eager       chain[subscription, *subscription] // those that have both a waiting receiver and room
	room        chain[waiter, *waiter]             // publishers that wait for room
	wake        *waiter                            // to be woken when mu is free, last first
}

func newQueue(s *Server, name string) *queue {
	return &queue{name: name, s: s, levels: make([]level, 1), byID: make(map[string]*item)}
}

// unlock frees mu and then wakes whoever got something: a goroutine woken earlier would run into the mutex.
func (q *queue) unlock() {
	w := q.wake
	q.wake = nil
	q.mu.Unlock()
	for w != nil {
		next := w.woken // before the send: the waiter is its owner's again afterwards
		w.woken = nil
		w.ch <- struct{}{}
		w = next
	}
}

// later notes that w is to be woken.
func (q *queue) later(w *waiter) {
	w.woken = q.wake
	q.wake = w
}

// full reports whether the queue takes no more messages.
func (q *queue) full() bool { return q.s.maxQueue > 0 && q.ready+q.delayed >= q.s.maxQueue }

// put stores m to be seen at the given time, unless the queue has it already. A lower Generation that waits is replaced.
// The caller dispatches.
func (q *queue) put(m *broker.Message, at time.Time) {
	if m.ID != "" && q.superseded(m) {
		return
	}
	q.insert(m, at)
}

// insert stores m whatever else the queue has.
func (q *queue) insert(m *broker.Message, at time.Time) {
	it := &item{m: m, q: q, index: -1}
	if m.ID != "" {
		it.same = q.byID[m.ID]
		q.byID[m.ID] = it
	}
	if at.IsZero() || !at.After(time.Now()) {
		q.append(it)
	} else {
		q.delay(it, at)
	}
}

// superseded reports whether m is no news: the queue has the same pair, or a later Generation. It removes the earlier
// Generations that wait; those in a consumer's hands are the consumer's to settle.
func (q *queue) superseded(m *broker.Message) bool {
	first := q.byID[m.ID]
	for it := first; it != nil; it = it.same {
		if it.m.Generation >= m.Generation {
			return true
		}
	}
	for it := first; it != nil; {
		next := it.same // drop cuts it out of the list
		if it.place != held {
			q.drop(it)
		}
		it = next
	}
	return false
}

// append puts it at the end of its level.
func (q *queue) append(it *item) {
	it.level = q.levelOf(it.m.Priority)
	it.seq = q.seq
	q.seq++
	it.place = ready
	q.levels[it.level].ring.push(it)
	q.ready++
}

// giveBack puts it where it was before it was handed out.
func (q *queue) giveBack(it *item) {
	it.place = returned
	heap.Push(&q.levels[it.level].returned, it)
	q.ready++
}

// delay gives it to the server's clock.
func (q *queue) delay(it *item, at time.Time) {
	it.place = delayed
	it.due = at
	q.delayed++
	q.s.clock.add(it)
}

// due makes a delayed item ready, unless it was removed meanwhile. It takes mu.
func (q *queue) due(it *item, at time.Time) {
	q.mu.Lock()
	if it.place == delayed && it.due.Equal(at) {
		q.delayed--
		q.append(it)
		q.dispatch()
	}
	q.unlock()
}

// levelOf is the first level whose bound is at least p, or the last.
func (q *queue) levelOf(p int) uint8 {
	last := len(q.levels) - 1
	for i := range last {
		if p <= q.levels[i].bound {
			return uint8(i)
		}
	}
	return uint8(last)
}

// next takes the most urgent item, or returns nil.
func (q *queue) next() *item {
	if q.ready == 0 {
		return nil
	}
	for i := range q.levels {
		l := &q.levels[i]
		if len(l.returned) > 0 {
			q.ready--
			return heap.Pop(&l.returned).(*item)
		}
		if it := l.ring.pop(); it != nil {
			q.ready--
			return it
		}
	}
	return nil
}

// remove takes a waiting item from where it waits. Its ID stays known.
func (q *queue) remove(it *item) {
	switch it.place {
	case ready:
		q.levels[it.level].ring.remove(it)
		q.ready--
	case returned:
		heap.Remove(&q.levels[it.level].returned, it.index)
		q.ready--
	case delayed:
		q.s.clock.remove(it)
		q.delayed--
	}
	it.place = gone
}

// drop removes a waiting item for good.
func (q *queue) drop(it *item) {
	q.remove(it)
	q.forget(it)
	q.admit()
}

// forget ends the life of an item: its ID is free again.
func (q *queue) forget(it *item) {
	it.place = gone
	if it.m.ID == "" {
		return
	}
	head := q.byID[it.m.ID]
	if head == it {
		if it.same == nil {
			delete(q.byID, it.m.ID)
		} else {
			q.byID[it.m.ID] = it.same
		}
		it.same = nil
		return
	}
	for p := head; p != nil; p = p.same {
		if p.same == it {
			p.same = it.same
			it.same = nil
			return
		}
	}
}

// waiting returns the latest Generation of an id that waits, or nil.
func (q *queue) waiting(id string) *item {
	var found *item
	for it := q.byID[id]; it != nil; it = it.same {
		if it.place != held && (found == nil || it.m.Generation > found.m.Generation) {
			found = it
		}
	}
	return found
}

// dispatch hands ready items to waiting receivers, in turn.
func (q *queue) dispatch() {
	for q.ready > 0 && q.eager.head != nil {
		s := q.eager.head
		w := s.waiters.head
		s.waiters.remove(w)
		w.d = q.hand(q.next(), s)
		q.later(w)
		q.eager.remove(s) // to the end of the line
		s.isEager = false
		s.refresh()
	}
}

// hand gives it to s.
func (q *queue) hand(it *item, s *subscription) *delivery {
	d := &it.first
	if d.item != nil {
		d = new(delivery)
	}
	it.place = held
	it.count++
	d.item, d.sub, d.lost, d.count = it, s, s.lost, it.count
	s.held.push(d)
	s.unsettled++
	q.held++
	q.admit()
	return d
}

// admit wakes a publisher if there is room for one.
func (q *queue) admit() {
	if w := q.room.head; w != nil && !q.full() {
		q.room.remove(w)
		w.admitted = true
		q.later(w)
	}
}

// setLevels makes the queue's levels those of the given bounds.
func (q *queue) setLevels(bounds []int) {
	old := q.levels
	q.levels = make([]level, max(1, len(bounds)))
	for i, b := range bounds {
		q.levels[i].bound = b
	}
	for i := range old {
		for _, it := range old[i].returned {
			it.level = q.levelOf(it.m.Priority)
			heap.Push(&q.levels[it.level].returned, it)
		}
		old[i].ring.each(func(it *item) {
			it.level = q.levelOf(it.m.Priority)
			q.levels[it.level].ring.push(it)
		})
	}
}
