// Package memresults keeps results in the memory of the process: for tests, for the programs that run producer and
// consumer in one process, and as the reference for authors of stores. Nothing survives the process.
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

// Config of [New]. The zero value is usable.
type Config struct {
	// TTL is how long a record is kept that names no time of its own. 0 or less: [DefaultTTL], 24 hours.
	TTL time.Duration
	// MaxRecords bounds the memory: beyond it the record that would expire first is forgotten. 0 or less: no bound.
	MaxRecords int
	// MaxResult is the largest Result in bytes; a larger one is refused with [resultstore.ErrTooLarge]. 0 or less:
	// [DefaultMaxResult], 64 MiB.
	MaxResult int
	// Buffer is how many notifications wait for a submitter that does not read them; beyond it the oldest are lost, and
	// the submitter finds the records with Load. 0 or less: [DefaultBuffer], 16,384.
	Buffer int
}

// Store is one process's view of records in memory. [Store.View] gives further views of the same records, for programs
// that play several processes; every view is closed on its own, and the records are there as long as one is open. Make
// the first with [New]. All methods may be called from any goroutine; none waits.
//
// "The same terminal record" is one of the same task, token and state: Save does not compare results.
type Store struct {
	t       *table
	streams []*stream // of this view; guarded by t.mu
	closed  bool      // guarded by t.mu
}

// New makes a store without records. It starts nothing; while there are records a timer waits for the next to expire.
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

func positive[T cmp.Ordered](v, otherwise T) T {
	var zero T
	if v > zero {
		return v
	}
	return otherwise
}

// View returns another view of the same records, as another process would have. A view of a closed one is closed.
func (s *Store) View() *Store {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	v := &Store{t: s.t, closed: s.closed}
	if !v.closed {
		s.t.views++
	}
	return v
}

// Save implements [resultstore.ResultStore]. Besides its errors it returns [task.ErrBadID] for an ID that is none and
// [resultstore.ErrMalformed] for a state that is not recorded.
func (s *Store) Save(ctx context.Context, r resultstore.Record) error {
	if err := check(ctx, r.ID); err != nil {
		return err
	}
	if !r.State.Recorded() {
		return fmt.Errorf("%w: state %q is not recorded", resultstore.ErrMalformed, r.State)
	}
	if len(r.Result) > s.t.config.MaxResult {
		return fmt.Errorf("%w: a result of %d bytes, at most %d are kept", resultstore.ErrTooLarge, len(r.Result), s.t.config.MaxResult)
	}
	listeners, kept, err := s.t.save(s, &r)
	for _, l := range listeners {
		l.Put(&kept)
	}
	return err
}

// Load implements [resultstore.ResultStore].
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

// Delete implements [resultstore.ResultStore].
func (s *Store) Delete(ctx context.Context, id task.ID) error {
	if err := check(ctx, id); err != nil {
		return err
	}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.closed {
		return resultstore.ErrClosed
	}
	if e := s.t.records[id]; e != nil {
		s.t.forget(e)
	}
	return nil
}

// Notify implements [resultstore.Notifier]. Every open stream of a node gets every record; what [Config.Buffer] says of
// slow readers is the only loss.
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

// Len returns the number of records that are kept, with some whose time may be over by up to a second.
func (s *Store) Len() int {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return len(s.t.records)
}

// Close implements [resultstore.ResultStore]: it ends the streams of this view, and forgets the records when no other
// view is open. It returns nil.
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

// stream implements resultstore.Notifications.
type stream struct {
	*ring.Stream[*entry]
	store *Store
	node  string
}

// Receive implements [resultstore.Notifications].
func (n *stream) Receive(ctx context.Context) (resultstore.Record, error) {
	e, err := n.Get(ctx)
	if err != nil {
		return resultstore.Record{}, err
	}
	return e.owned(), nil
}

// Close implements [resultstore.Notifications].
func (n *stream) Close(context.Context) error {
	n.store.t.mu.Lock()
	defer n.store.t.mu.Unlock()
	n.store.t.detach(n)
	n.store.streams = slices.DeleteFunc(n.store.streams, func(o *stream) bool { return o == n })
	n.Stream.Close()
	return nil
}

func check(ctx context.Context, id task.ID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return id.Check()
}

// owned copies the record for a caller. A RemoteError is immutable and may be shared.
func (e *entry) owned() resultstore.Record {
	r := e.rec
	r.Result = bytes.Clone(r.Result)
	return r
}

var (
	_ resultstore.ResultStore = (*Store)(nil)
	_ resultstore.Notifier    = (*Store)(nil)
)
