// Package held keeps the records that a process has claimed. It renews their leases until each
// record is settled, released or lost.
//
// The Listener of a schedule, the Runner of jobs and the subscriptions of deferred tasks keep their
// claims in a [Set]. Each of them decides which records it claims and when.
package held

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// ErrUnknown is a result of Config.Renew for a record: its lease may have been renewed or not.
var ErrUnknown = errors.New("held: the lease may have been renewed or not")

// Member is a pointer to a type that embeds [Item].
type Member interface {
	comparable
	item() *Item
}

// Config holds the settings of a [Set].
type Config[K comparable, V Member] struct {
	Key   func(V) K
	Lease time.Duration // length of each record's lease; it is renewed after each third of it
	Batch int           // largest number of records in one call of Renew

	// Renews reports whether the lease of a record must be renewed. Nil: all are renewed.
	Renews func(V) bool
	// Renew renews the leases of records. The new leases begin at asked or later. errs holds for each
	// record nil if it was renewed, [ErrUnknown], or otherwise why it is lost. If err is not nil the
	// outcome is unknown, as after ErrUnknown, and the records are renewed the next time. An ended
	// lease can be renewed while no other process has claimed the record.
	Renew func(ctx context.Context, vs []V) (errs []error, asked time.Time, err error)
	// Lost is called for a record that Renew reports as lost, unless it was settled or released
	// meanwhile. It must call Lose.
	Lost func(v V, err error)
}

// Set holds the records that a process has claimed. Make one with [New]. Safe for concurrent use.
type Set[K comparable, V Member] struct {
	c     Config[K, V]
	freed wake.Signal

	mu   sync.Mutex
	held map[K]V
	idle int
}

// New returns an empty Set. It starts no goroutine; see [Set.KeepRenewing].
func New[K comparable, V Member](c Config[K, V]) *Set[K, V] {
	return &Set[K, V]{c: c, freed: wake.New(), held: map[K]V{}}
}

// Hold adds a record. If another record is held under its key, Hold replaces that one and returns
// it with replaced true; the caller must treat it as lost. Its lease is still watched until
// Release. It takes s.mu.
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

// Release removes records, ends the watch on their leases, and notifies [Set.Freed]. A record that
// is not held, or whose key is held by another one, is not removed from the Set. It takes s.mu.
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

// remove removes a record from the map and the count of idle ones. Call it with s.mu held.
func (s *Set[K, V]) remove(key K, v V) {
	delete(s.held, key)
	if v.item().idle {
		s.idle--
	}
}

// Get returns the record of a key. held is false if none is held. It takes s.mu.
func (s *Set[K, V]) Get(key K) (v V, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, held = s.held[key]
	return v, held
}

// Holds reports whether v itself is held under its key.
func (s *Set[K, V]) Holds(v V) bool {
	now, held := s.Get(s.c.Key(v))
	return held && now == v
}

// Idle records that no handler runs for v any more, and notifies [Set.Freed]. The record stays held
// until Release. A record that is not held, or idle already, is not counted. It takes s.mu.
func (s *Set[K, V]) Idle(v V) {
	s.mu.Lock()
	if i := v.item(); s.held[s.c.Key(v)] == v && !i.idle {
		i.idle = true
		s.idle++
	}
	s.mu.Unlock()
	s.freed.Notify()
}

// Len returns the number of held records and how many of them are idle. It takes s.mu.
func (s *Set[K, V]) Len() (all, idle int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held), s.idle
}

// Freed returns the signal that is notified when a record is released or becomes idle.
func (s *Set[K, V]) Freed() wake.Signal { return s.freed }

// All returns the held records in any order. It takes s.mu.
func (s *Set[K, V]) All() []V {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]V, 0, len(s.held))
	for _, v := range s.held {
		all = append(all, v)
	}
	return all
}

// Running returns the number of held records with a running handler.
func (s *Set[K, V]) Running() int {
	n := 0
	for _, v := range s.All() {
		if v.item().Runs() {
			n++
		}
	}
	return n
}

// Expire ends the context of a record's handler before its lease ends, by the clock of this
// process, unless a renewal succeeds. It is needed while the store cannot be reached.
//
// The lease begins at asked or later. The context ends a tenth of the lease early, so that the
// handler has time to return.
func (s *Set[K, V]) Expire(v V, asked time.Time) {
	v.item().watch(s.ends(asked))
}

// ends returns the time at which the handler's context ends, for a lease that begins at asked: a
// tenth of the lease before its end.
func (s *Set[K, V]) ends(asked time.Time) time.Time { return asked.Add(s.c.Lease - s.c.Lease/10) }

// KeepRenewing renews the leases of all held records after each third of the lease. It blocks until
// ctx ends.
func (s *Set[K, V]) KeepRenewing(ctx context.Context) {
	for wake.Sleep(ctx, max(s.c.Lease/3, time.Millisecond)) {
		s.Renew(ctx, s.All()...)
	}
}

// Renew renews the leases of records in batches. It blocks until Config.Renew has returned for each
// batch.
//
//   - A record that is lost, or for which Config.Renews returns false: skipped.
//   - A renewed record: the time at which Expire ends its handler's context moves.
//   - A record that Config.Renew reports as lost: Config.Lost is called, unless the record was
//     settled, released or lost meanwhile.
//   - Config.Renew fails for a batch, or with ErrUnknown for a record: left for the next time.
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
			case errors.Is(errs[i], ErrUnknown): // renewed the next time
			case s.renews(v) && !v.item().Settling() && !v.item().Lost() && s.Holds(v):
				s.c.Lost(v, errs[i])
			}
		}
	}
}

// renews reports whether the lease of v must be renewed: the result of Config.Renews, true if that
// is nil.
func (s *Set[K, V]) renews(v V) bool { return s.c.Renews == nil || s.c.Renews(v) }
