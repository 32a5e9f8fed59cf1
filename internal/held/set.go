// Package held keeps what a process has claimed: records under leases, which are renewed until each
// record is settled, given back or lost.
//
// The Listener of a schedule, the Runner of jobs and the subscriptions of deferred tasks hold their
// claims in a [Set]. What they claim, and when, is theirs.
package held

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// Member is a pointer to a type that embeds [Item].
type Member interface {
	comparable
	item() *Item
}

// Config says how the leases of a [Set] are renewed.
type Config[K comparable, V Member] struct {
	Key   func(V) K
	Lease time.Duration // of each record; renewed at each third of it
	Batch int           // the most records that one call of Renew gets

	// Renews reports whether a record's lease is to be renewed. Default: each is.
	Renews func(V) bool
	// Renew renews the leases of records, which then begin at asked or later. errs holds nil for a
	// renewed record, and else why it is lost. With err the leases are unknown. They are renewed
	// the next time: a lease that has ended can be renewed while no other claimed the record.
	Renew func(ctx context.Context, vs []V) (errs []error, asked time.Time, err error)
	// Lost is called for a record that Renew says is lost, unless it was settled or released
	// meanwhile. It calls Lose.
	Lost func(v V, err error)
}

// Set is what a process has claimed. Make one with [New]. Safe for concurrent use.
type Set[K comparable, V Member] struct {
	c     Config[K, V]
	freed wake.Signal

	mu   sync.Mutex
	held map[K]V
	idle int
}

// New returns an empty Set. It starts nothing; see [Set.KeepRenewing].
func New[K comparable, V Member](c Config[K, V]) *Set[K, V] {
	return &Set[K, V]{c: c, freed: wake.New(), held: map[K]V{}}
}

// Hold adds a record. It returns the earlier claim of the same key, if there is one, which is lost.
func (s *Set[K, V]) Hold(v V) (before V, replaced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.c.Key(v)
	if before, replaced = s.held[key]; replaced {
		s.remove(key, before)
	}
	s.held[key] = v
	return before, replaced
}

// Release forgets records, held or not. Others are held in their place, or they are settled.
func (s *Set[K, V]) Release(vs ...V) {
	s.mu.Lock()
	for _, v := range vs {
		if key := s.c.Key(v); s.held[key] == v {
			s.remove(key, v)
		}
	}
	s.mu.Unlock()
	for _, v := range vs {
		v.item().forget()
	}
	s.freed.Notify()
}

// remove takes a record out of the map. The caller holds the mutex.
func (s *Set[K, V]) remove(key K, v V) {
	delete(s.held, key)
	if v.item().idle {
		s.idle--
	}
}

// Get returns the record of a key, if it is held.
func (s *Set[K, V]) Get(key K) (v V, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, held = s.held[key]
	return v, held
}

// Holds reports whether v is held: it was not released, and none took its place.
func (s *Set[K, V]) Holds(v V) bool {
	now, held := s.Get(s.c.Key(v))
	return held && now == v
}

// Idle notes that nothing is run for a record any more. It stays held until its end is stored.
func (s *Set[K, V]) Idle(v V) {
	s.mu.Lock()
	if i := v.item(); s.held[s.c.Key(v)] == v && !i.idle {
		i.idle = true
		s.idle++
	}
	s.mu.Unlock()
	s.freed.Notify()
}

// Len returns how many records are held, and how many of these are idle.
func (s *Set[K, V]) Len() (all, idle int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held), s.idle
}

// Freed wakes one goroutine when a record is released, or idle.
func (s *Set[K, V]) Freed() wake.Signal { return s.freed }

// All returns what is held, in no order.
func (s *Set[K, V]) All() []V {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]V, 0, len(s.held))
	for _, v := range s.held {
		all = append(all, v)
	}
	return all
}

// Running returns for how many records a handler runs.
func (s *Set[K, V]) Running() int {
	n := 0
	for _, v := range s.All() {
		if v.item().Runs() {
			n++
		}
	}
	return n
}

// Expire ends the context of a record's handler before the lease ends, by the clock of this
// process, unless a renewal comes. Where the store is away nobody else tells of it.
//
// The lease begins at asked or later. Its last tenth is for the handler to end in.
func (s *Set[K, V]) Expire(v V, asked time.Time) {
	v.item().watch(s.ends(asked))
}

func (s *Set[K, V]) ends(asked time.Time) time.Time { return asked.Add(s.c.Lease - s.c.Lease/10) }

// KeepRenewing renews the leases of all that is held until ctx ends.
func (s *Set[K, V]) KeepRenewing(ctx context.Context) {
	for wake.Sleep(ctx, max(s.c.Lease/3, time.Millisecond)) {
		s.Renew(ctx, s.All()...)
	}
}

// Renew renews the leases of records.
func (s *Set[K, V]) Renew(ctx context.Context, vs ...V) {
	vs = slices.DeleteFunc(vs, func(v V) bool { return v.item().Lost() || !s.renews(v) })
	for batch := range slices.Chunk(vs, s.c.Batch) {
		errs, asked, err := s.c.Renew(ctx, batch)
		if err != nil {
			continue
		}
		for i, v := range batch {
			switch {
			case errs[i] == nil:
				v.item().extend(s.ends(asked))
			case s.renews(v) && !v.item().Settling() && !v.item().Lost() && s.Holds(v):
				s.c.Lost(v, errs[i])
			}
		}
	}
}

func (s *Set[K, V]) renews(v V) bool { return s.c.Renews == nil || s.c.Renews(v) }
