// Package saves stores the records of ended attempts, many in one call of the result store.
package saves

import (
	"context"
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

// maxTime is the greatest Config.Limit.
const maxTime = 2 * time.Second

// Config holds the settings that the savers of all stores share. T is the attempt to which a record
// belongs. All fields are required.
type Config[T any] struct {
	// Life returns the context that ends all batches.
	Life func() context.Context
	// Limit is the longest time of a batch, at most 2s. A store that does not answer delays the next
	// batch by this time.
	Limit time.Duration
	// Go runs fn on another goroutine.
	Go func(fn func())
	// Ended is called for each record when its batch has ended, with the outcome of the record. ctx is
	// that of the batch. Ended must not wait longer.
	Ended func(ctx context.Context, of T, err error)
}

// Savers are the savers of several stores.
type Savers[T any] []*Saver[T]

// New returns a saver for each store that is a [resultstore.BatchSaver]. Stores may be nil.
func New[T any](c Config[T], stores ...resultstore.ResultStore) (all Savers[T]) {
	for _, store := range stores {
		if b, ok := capability.As[resultstore.BatchSaver](store); ok {
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

	current batch[T] // used by that goroutine only
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

// run stores batches until no record waits.
func (s *Saver[T]) run() {
	for s.take() {
		s.save()
	}
}

// take moves records from the waiting ones to s.current: at most maxBatch, and about maxBatchBytes.
// If none waits, it records that the goroutine ends, and returns false. It takes s.mu.
func (s *Saver[T]) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, 0
	for n < min(len(s.waiting.records), maxBatch) && size < maxBatchBytes {
		size += len(s.waiting.records[n].Result)
		n++
	}
	s.current.records = append(s.current.records[:0], s.waiting.records[:n]...)
	s.current.of = append(s.current.of[:0], s.waiting.of[:n]...)
	s.waiting.records = slices.Delete(s.waiting.records, 0, n)
	s.waiting.of = slices.Delete(s.waiting.of, 0, n)
	s.running = n > 0
	return s.running
}

// save stores s.current, calls Config.Ended for each of its records, and empties it.
func (s *Saver[T]) save() {
	ctx, cancel := context.WithTimeout(s.c.Life(), min(s.c.Limit, maxTime))
	defer cancel()
	errs := s.batches.SaveBatch(ctx, s.current.records)
	for i, of := range s.current.of {
		err := resultstore.ErrUnavailable // a store of a user may return too few errors
		if i < len(errs) {
			err = errs[i]
		}
		s.c.Ended(ctx, of, err)
	}
	clear(s.current.records)
	clear(s.current.of)
}
