// Package memresults keeps results in the memory of one process. It serves tests and programs that
// run producer and consumer in one process. Authors of stores may read it as the reference. All
// records are lost when the process ends.
package memresults

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/internal/ring"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Defaults of [Config].
const (
	DefaultTTL       = task.DefaultResultTTL
	DefaultMaxResult = 64 << 20
	DefaultBuffer    = 16 << 10
)

// Config holds the settings of [New]. The zero value is usable.
type Config struct {
	// TTL is the retention of a record whose own TTL is 0. 0 or less: [DefaultTTL], 24 hours.
	TTL time.Duration
	// MaxRecords limits the number of records. When a record exceeds it, the store removes the record
	// that would expire first. 0 or less: no limit.
	MaxRecords int
	// MaxResult is the largest Result in bytes. Save returns [resultstore.ErrTooLarge] for a larger
	// one. 0 or less: [DefaultMaxResult], 64 MiB.
	MaxResult int
	// Buffer is the number of notifications that wait for a slow submitter. Beyond it the oldest are
	// lost, and the submitter finds those records with Load. 0 or less: [DefaultBuffer], 16,384.
	Buffer int
}

// Store is one view of records in memory. [New] makes the first view and [Store.View] further
// views, for programs that simulate several processes. Each view is closed separately. The records
// exist until all views are closed. All methods are safe for concurrent use and none blocks.
//
// Save treats two terminal records as the same if task, token and state are equal. It does not
// compare results.
type Store struct {
	t       *table
	streams []*stream // streams of this view; guarded by t.mu
	closed  bool      // guarded by t.mu
}

// New returns an empty store with the defaults in the fields of c that are 0 or less. It starts no
// goroutine. While records exist, a timer waits for the next one to expire.
func New(c Config) *Store {
	c.TTL = positive(c.TTL, DefaultTTL)
	c.MaxResult = positive(c.MaxResult, DefaultMaxResult)
	c.Buffer = positive(c.Buffer, DefaultBuffer)
	return &Store{t: &table{
		config:  c,
		start:   time.Now(),
		views:   1,
		records: map[task.ID]*entry{},
		nodes:   map[string][]*stream{},
	}}
}

// positive returns v if it is above zero, otherwise the argument otherwise.
func positive[T cmp.Ordered](v, otherwise T) T {
	var zero T
	if v > zero {
		return v
	}
	return otherwise
}

// View returns another view of the same records, as another process would have it. A view of a
// closed view is closed. The records exist until all open views are closed. It takes t.mu.
func (s *Store) View() *Store {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	v := &Store{t: s.t, closed: s.closed}
	if !v.closed {
		s.t.views++
	}
	return v
}

// Save implements [resultstore.ResultStore]: it stores a copy of r unless the stored record is
// newer or final (then ErrStale, or nil if it is the same final record). It adds a newly stored
// terminal record to the buffers of its submitter's streams. If Config.MaxRecords is exceeded it
// removes the record that expires first. It takes t.mu, but does not hold it while it fills
// buffers.
//
// Save also returns [task.ErrBadID] for an invalid ID and [resultstore.ErrMalformed] for a state
// that is not recorded. It returns [resultstore.ErrTooLarge] for a Result above Config.MaxResult,
// ErrClosed after Close, and ctx's error if ctx has ended.
func (s *Store) Save(ctx context.Context, r resultstore.Record) error {
	if err := check(ctx, r.ID); err != nil {
		return err
	}
	if !r.State.Recorded() {
		return fmt.Errorf("%w: state %q is not recorded", resultstore.ErrMalformed, r.State)
	}
	if len(r.Result) > s.t.config.MaxResult {
		return fmt.Errorf("%w: the result has %d bytes, more than the MaxResult of %d", resultstore.ErrTooLarge, len(r.Result), s.t.config.MaxResult)
	}
	listeners, kept, err := s.t.save(s, &r)
	for _, l := range listeners {
		l.Put(&kept)
	}
	return err
}

// Load implements [resultstore.ResultStore]: it returns a copy of the record of task id. Returns
// ErrNotFound if no record exists or it has expired, task.ErrBadID for an invalid id, ErrClosed
// after Close, and ctx's error if ctx has ended. It takes t.mu.
func (s *Store) Load(ctx context.Context, id task.ID) (resultstore.Record, error) {
	if err := check(ctx, id); err != nil {
		return resultstore.Record{}, err
	}
	s.t.mu.Lock()
	if s.closed {
		s.t.mu.Unlock()
		return resultstore.Record{}, resultstore.ErrClosed
	}
	e := s.t.find(id)
	if e == nil {
		s.t.mu.Unlock()
		return resultstore.Record{}, resultstore.ErrNotFound
	}
	s.t.mu.Unlock()
	return e.owned(), nil
}

// Delete implements [resultstore.ResultStore]: it removes the record and the checkpoints of task
// id. Returns nil if no record exists, task.ErrBadID for an invalid id, ErrClosed after Close, and
// ctx's error if ctx has ended. It takes t.mu.
func (s *Store) Delete(ctx context.Context, id task.ID) error {
	if err := check(ctx, id); err != nil {
		return err
	}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.closed {
		return resultstore.ErrClosed
	}
	delete(s.t.checkpoints.tasks, id)
	if e := s.t.records[id]; e != nil {
		s.t.forget(e)
	}
	return nil
}

// Notify implements [resultstore.Notifier]: it returns a stream of the terminal records for node
// that are saved from now on. Every open stream of node receives each of them. A stream loses
// records only if its reader is slow, see [Config.Buffer]. Returns ErrClosed after Close, and ctx's
// error if ctx has ended. It takes t.mu.
func (s *Store) Notify(ctx context.Context, node string) (resultstore.Notifications, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.closed {
		return nil, resultstore.ErrClosed
	}
	n := &stream{
		Stream: ring.NewStream[*entry](s.t.config.Buffer, resultstore.ErrClosed),
		store:  s,
		node:   node,
	}
	s.streams = append(s.streams, n)
	s.t.attach(n)
	return n, nil
}

// Len returns the number of stored records. It counts records that expired up to a second ago. It
// takes t.mu.
func (s *Store) Len() int {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return len(s.t.records)
}

// Close implements [resultstore.ResultStore]: it ends the streams of this view, and removes all
// records if it was the last open view. It returns nil, and further calls do nothing. It takes
// t.mu.
func (s *Store) Close(context.Context) error {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	for _, n := range s.streams {
		s.t.detach(n)
		n.Stream.Close()
	}
	s.streams = nil
	if s.t.views--; s.t.views == 0 {
		s.t.clear()
	}
	return nil
}

// stream implements resultstore.Notifications for one node.
type stream struct {
	*ring.Stream[*entry]
	store *Store
	node  string
}

// Receive implements [resultstore.Notifications]: it waits for the next record in the buffer and
// returns a copy, also if ctx has ended. Returns ctx's error when ctx ends and ErrClosed after
// Close of the stream or its view.
func (n *stream) Receive(ctx context.Context) (resultstore.Record, error) {
	e, err := n.Get(ctx)
	if err != nil {
		return resultstore.Record{}, err
	}
	return e.owned(), nil
}

// Close implements [resultstore.Notifications]: it ends the stream and removes it from its view.
// It returns nil. It takes t.mu.
func (n *stream) Close(context.Context) error {
	n.store.t.mu.Lock()
	defer n.store.t.mu.Unlock()
	n.store.t.detach(n)
	n.store.streams = slices.DeleteFunc(n.store.streams, func(o *stream) bool { return o == n })
	n.Stream.Close()
	return nil
}

// check returns ctx's error if ctx has ended, or [task.ErrBadID] if id is invalid.
func check(ctx context.Context, id task.ID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return id.Check()
}

// owned returns a copy of the record for the caller. The RemoteError is shared because it is
// immutable.
func (e *entry) owned() resultstore.Record {
	r := e.rec
	r.Result, r.Children = bytes.Clone(r.Result), slices.Clone(r.Children)
	return r
}

var (
	_ resultstore.ResultStore = (*Store)(nil)
	_ resultstore.Notifier    = (*Store)(nil)
)
