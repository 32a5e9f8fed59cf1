package membroker

import (
	"container/heap"
	"fmt"
	"reflect"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/floor"
)

// load counts the held messages of each key of a fair queue, once a subscription has bounds. The
// mutex guards it.
type load struct {
	q        *queue
	keys     map[string]*keyLoad // keys with held messages or a used rate
	all      keyLoad             // the whole queue; its held is not used
	counting bool                // not all messages that were held before are counted
	// the bounds of the last claim: a claim with others looks at the parked keys again
	by    *broker.Bounds
	known []*broker.Bounds // bounds of subscriptions, the last ones; equal ones are one pointer
	due   byAt             // keys with a time
	timer *time.Timer
}

// keyLoad is the load of a key.
type keyLoad struct {
	key   string
	held  int
	used  time.Time // the rate is used until then
	at    time.Time // when the key is looked at again, if it is in due
	index int       // in due; -1: not in it
}

// maxKnown limits the bounds that a load knows.
const maxKnown = 8

// same returns the pointer to bounds equal to b: a known one, or one to a copy of b. It returns nil
// if b has no limit. Call it with the queue's mutex held.
func (l *load) same(b broker.Bounds) *broker.Bounds {
	if b.IsZero() {
		return nil
	}
	for _, k := range l.known {
		if reflect.DeepEqual(*k, b) {
			return k
		}
	}
	if len(l.known) == maxKnown {
		l.known = l.known[1:]
	}
	l.known = append(l.known, &b)
	return &b
}

// SetBounds implements [broker.Bounder]. The next message is taken by b, also for receivers that
// wait. It takes the mutexes of the Server, of the Brokers and of the queue, and does not wait for
// messages. Returns ErrMalformed for bounds that are not valid or limit a queue that is not fair.
func (s *subscription) SetBounds(b broker.Bounds) error {
	if err := b.Check(); err != nil {
		return fmt.Errorf("membroker: bounds of %q: %w", s.q.name, err)
	}
	if err := s.q.countLoad(b); err != nil {
		return err
	}
	s.setBounds(b)
	return nil
}

// setBounds sets the bounds of s, for which countLoad was called. It takes q.mu.
func (s *subscription) setBounds(b broker.Bounds) {
	q := s.q
	q.mu.Lock()
	defer q.unlock()
	if q.load != nil {
		s.bounds = q.load.same(b)
		q.dispatch()
	}
}

// countLoad starts the load of a queue with the messages that are held now, if b has a limit and
// the queue has no load. Returns ErrMalformed if b has a limit and the queue is not fair. It takes
// the mutexes of the Server, of the Brokers and of the queue.
func (q *queue) countLoad(b broker.Bounds) error {
	if b.IsZero() {
		return nil
	}
	q.mu.Lock()
	fair, counts := q.fair, q.load != nil
	if fair && !counts {
		q.load = &load{q: q, keys: make(map[string]*keyLoad), all: keyLoad{index: -1}, counting: true}
	}
	q.unlock()
	switch {
	case !fair:
		return fmt.Errorf("membroker: %w", broker.NotFair(q.name, "bounds"))
	case !counts:
		q.s.eachHeld(q, func(d *delivery) { q.load.take(d.item) })
		q.mu.Lock()
		q.load.counting = false
		q.dispatch() // another subscription may have had bounds meanwhile
		q.unlock()
	}
	return nil
}

// take counts an item that is held, unless it is counted. Call it with the queue's mutex held.
func (l *load) take(it *item) {
	if it.counted {
		return
	}
	it.counted = true
	l.of(it.m.Key).held++
}

// of returns the load of a key. Call it with the queue's mutex held.
func (l *load) of(key string) *keyLoad {
	k := l.keys[key]
	if k == nil {
		k = &keyLoad{key: key, index: -1}
		l.keys[key] = k
	}
	return k
}

// free counts an item that is held no more, and lets its key take turns again. Call it with the
// queue's mutex held, and dispatch afterwards.
func (l *load) free(it *item) {
	if !it.counted {
		return
	}
	it.counted = false
	k := l.keys[it.m.Key]
	k.held--
	l.unpark(k.key)
	l.forget(k)
}

// forget removes the load of a key that is zero. Call it with the queue's mutex held.
func (l *load) forget(k *keyLoad) {
	if k.held == 0 && k.used.IsZero() && k != &l.all {
		delete(l.keys, k.key)
	}
}

// unpark lets a key take turns again, in all levels. Call it with the queue's mutex held.
func (l *load) unpark(key string) {
	for i := range l.q.levels {
		l.q.levels[i].keys.Unpark(key)
	}
}

// next removes and returns the next ready item that b allows, or returns nil. It parks the keys at
// their limits. See the queue's next. Call it with the queue's mutex held.
func (l *load) next(f *floor.Floor, b *broker.Bounds) *item {
	if b != l.by {
		l.by = b
		for i := range l.q.levels {
			l.q.levels[i].keys.UnparkAll()
		}
	}
	switch {
	case b == nil:
		return l.q.pop(f)
	case l.counting:
		return nil
	}
	now := time.Now()
	if !l.allows(b.All, l.q.held, &l.all, now) {
		return nil
	}
	for i := range l.q.levels {
		at := f.At(i, len(l.q.levels))
		keys := l.q.levels[at].keys
		for e := keys.Peek(); e != nil; e = keys.Peek() {
			bound := b.Of(e.Key())
			k := l.of(e.Key())
			if !l.allows(bound, k.held, k, now) {
				l.park(k.key)
				continue
			}
			keys.Pop()
			f.Took(at)
			l.q.ready--
			l.use(bound, k, now)
			l.use(b.All, &l.all, now)
			return e.Item
		}
	}
	return nil
}

// allows reports whether a bound allows one more message, of a key or queue that holds held. If its
// rate does not, k is looked at again when it does. Call it with the queue's mutex held.
func (l *load) allows(b broker.Bound, held int, k *keyLoad, now time.Time) bool {
	if b.Max > 0 && held >= b.Max {
		return false
	}
	if at := b.FreeAt(k.used); at.After(now) {
		l.lookAt(k, at)
		return false
	}
	return true
}

// use counts a message of k for the rate of b. Call it with the queue's mutex held.
func (l *load) use(b broker.Bound, k *keyLoad, now time.Time) {
	if b.Rate > 0 {
		k.used = b.Use(k.used, now)
		if k.index < 0 {
			l.lookAt(k, k.used)
		}
	}
}

// park stops the turns of a key, in all levels. Call it with the queue's mutex held.
func (l *load) park(key string) {
	for i := range l.q.levels {
		l.q.levels[i].keys.Park(key)
	}
}

// lookAt has the load look at k at the time at or before. Call it with the queue's mutex held.
func (l *load) lookAt(k *keyLoad, at time.Time) {
	switch {
	case k.index < 0:
		k.at = at
		heap.Push(&l.due, k)
	case at.Before(k.at):
		k.at = at
		heap.Fix(&l.due, k.index)
	default:
		return
	}
	if k.index == 0 {
		l.arm()
	}
}

// arm sets the timer to the first time. Call it with the queue's mutex held.
func (l *load) arm() {
	wait := time.Until(l.due[0].at)
	if l.timer == nil {
		l.timer = time.AfterFunc(wait, l.fire)
	} else {
		l.timer.Reset(wait)
	}
}

// fire is called by the timer. The keys whose time has come take turns again, and keys without a
// load are forgotten. It takes the queue's mutex.
func (l *load) fire() {
	l.q.mu.Lock()
	defer l.q.unlock()
	now := time.Now()
	for len(l.due) > 0 && !l.due[0].at.After(now) {
		k := heap.Pop(&l.due).(*keyLoad)
		if k.used.After(now) {
			k.at = k.used
			heap.Push(&l.due, k)
		} else {
			k.used = time.Time{}
		}
		l.unpark(k.key)
		l.forget(k)
	}
	if len(l.due) > 0 {
		l.arm()
	}
	l.q.dispatch()
}

// byAt is a heap of loads by at.
type byAt []*keyLoad

func (h byAt) Len() int { return len(h) }

// Less orders loads by at.
func (h byAt) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h byAt) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push appends x, a *keyLoad, for container/heap.
func (h *byAt) Push(x any) {
	k := x.(*keyLoad)
	k.index = len(*h)
	*h = append(*h, k)
}

// Pop removes and returns the last load, for container/heap.
func (h *byAt) Pop() any {
	last := len(*h) - 1
	k := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	k.index = -1
	return k
}
