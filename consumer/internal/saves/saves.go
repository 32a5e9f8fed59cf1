// Package saves stores the records of ended attempts, many in one call of the result store.
package saves

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/resultstore"
)

// Limits of one batch.
const (
	maxBatch      = 256
	maxBatchBytes = 1 << 20
)

// MaxResult is the largest result, in bytes, of a record for [Saver.Add]. A larger record would
// delay those beside it.
const MaxResult = 64 << 10

// MaxTime is the longest time in which a batch is stored.
const MaxTime = 2 * time.Second

// Config holds the settings that the savers of all stores share. T is the attempt to which a record
// belongs. All fields are required.
type Config[T any] struct {
	// Life returns the context that ends all batches.
	Life func() context.Context
	// Limit is the longest time of the calls of Ended for a batch. A batch is stored within this time
	// and MaxTime. Records that wait behind a batch that is not stored in time get ErrUnavailable.
	Limit time.Duration
	// Go runs fn on another goroutine.
	Go func(fn func())
	// Ended is called for each record when its batch has ended, with the outcome of the record. Calls
	// for one batch follow each other, beside those for others. ctx ends after Limit.
	Ended func(ctx context.Context, of T, err error)
}

// Savers are the savers of several stores.
type Savers[T any] []*Saver[T]

// New returns a saver for each store that is a [resultstore.BatchSaver]. Stores may be nil. A store
// behind a wrapper gets none: the wrapper's own Save would not be called.
func New[T any](c Config[T], stores ...resultstore.ResultStore) (all Savers[T]) {
	for _, store := range stores {
		b, ok := capability.As[resultstore.BatchSaver](store)
		if ok && reflect.TypeOf(store).Comparable() && any(b) == any(store) {
			all = append(all, &Saver[T]{c: c, store: store, batches: b})
		}
	}
	return all
}

// Of returns the saver of a store, or nil if that store saves no batches.
func (all Savers[T]) Of(store resultstore.ResultStore) *Saver[T] {
	for _, s := range all {
		if s.store == store {
			return s
		}
	}
	return nil
}

// Saver stores records in batches. While a batch is on its way, further records wait for the next
// one. No timer is involved. Safe for concurrent use.
type Saver[T any] struct {
	c       Config[T]
	store   resultstore.ResultStore
	batches resultstore.BatchSaver

	mu      sync.Mutex
	waiting batch[T] // for the next batch
	running bool     // a goroutine stores batches
}

// batch holds records with their attempts.
type batch[T any] struct {
	records []resultstore.Record
	of      []T
}

// Add adds rec, which belongs to of, to the next batch. It does not wait. Config.Ended is called
// once for it. It takes s.mu.
func (s *Saver[T]) Add(rec resultstore.Record, of T) {
	s.mu.Lock()
	s.waiting.records, s.waiting.of = append(s.waiting.records, rec), append(s.waiting.of, of)
	start := !s.running
	s.running = true
	s.mu.Unlock()
	if start {
		s.c.Go(s.run)
	}
}

// run stores batches until no record waits. If a batch is not stored in time, the records behind it
// are not stored either: their callers store them alone, so that one slow record does not delay the
// others again and again.
func (s *Saver[T]) run() {
	for {
		b := s.take()
		if len(b.of) == 0 {
			return
		}
		if !s.save(b) {
			s.end(s.takeAll(), nil)
		}
	}
}

// take removes the first waiting records and returns them: at most maxBatch, and about
// maxBatchBytes. If none waits, it records that the goroutine ends. It takes s.mu.
func (s *Saver[T]) take() batch[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, 0
	for n < min(len(s.waiting.records), maxBatch) && size < maxBatchBytes {
		size += len(s.waiting.records[n].Result)
		n++
	}
	s.running = n > 0
	first := batch[T]{slices.Clone(s.waiting.records[:n]), slices.Clone(s.waiting.of[:n])}
	s.waiting.records = slices.Delete(s.waiting.records, 0, n)
	s.waiting.of = slices.Delete(s.waiting.of, 0, n)
	return first
}

// takeAll removes all waiting records and returns them. It takes s.mu.
func (s *Saver[T]) takeAll() batch[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.waiting
	s.waiting = batch[T]{}
	return all
}

// save stores b and passes the outcomes on. It returns false if that took too long.
func (s *Saver[T]) save(b batch[T]) bool {
	ctx, cancel := context.WithTimeout(s.c.Life(), min(s.c.Limit, MaxTime))
	defer cancel()
	errs := s.batches.SaveBatch(ctx, b.records)
	s.end(b, errs)
	return ctx.Err() == nil
}

// end calls Config.Ended for each record of b, on another goroutine: it may wait for the broker. A
// record without an error in errs was not stored, since a store of a user may return too few.
func (s *Saver[T]) end(b batch[T], errs []error) {
	if len(b.of) == 0 {
		return
	}
	s.c.Go(func() {
		ctx, cancel := context.WithTimeout(s.c.Life(), s.c.Limit)
		defer cancel()
		for i, of := range b.of {
			err := resultstore.ErrUnavailable
			if i < len(errs) {
				err = errs[i]
			}
			s.c.Ended(ctx, of, err)
		}
	})
}
