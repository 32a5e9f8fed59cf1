// Package memjobs keeps jobs in the memory of the process: for tests, for examples, and for programs whose jobs may be forgotten when
// they end.
//
// There is one transaction at a time. What is due is found by indexes, so that to hand out a job of a million takes microseconds.
// It starts no goroutine and waits by channels alone, so that it can be used inside of testing/synctest.
package memjobs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Config of [New]. The zero value is usable.
type Config struct {
	// Now is the clock. nil: time.Now. It is called by one goroutine at a time.
	Now func() time.Time
}

// Store is one process's way to jobs in memory. Make one with [New], and others on the same jobs with Join. All methods may be called from
// any goroutine, but not by the function of a transaction, which would wait for itself.
type Store struct {
	core *core

	mu     sync.Mutex
	closed bool
	under  int           // calls under way
	idle   chan struct{} // closed when the last of them has ended; nil while nobody waits for it
	stops  map[*watcher]struct{}
}

// core is what joined stores share.
type core struct {
	turn  chan struct{} // who holds its token uses the table
	table *table
	now   func() time.Time

	mu       sync.Mutex
	watchers atomic.Pointer[[]*watcher] // replaced as a whole
}

type watcher struct{ wake func(names []string) }

var _ jobstore.Store = (*Store)(nil)

// New makes a store without jobs. There is no configuration that it refuses.
func New(c Config) (*Store, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	return newStore(&core{turn: make(chan struct{}, 1), table: newTable(), now: c.Now}), nil
}

func newStore(c *core) *Store { return &Store{core: c, stops: map[*watcher]struct{}{}} }

// Join returns another store on the same jobs, as another process would have it. Each is closed by itself; the jobs last as long as any
// of them is referred to.
func (s *Store) Join() *Store { return newStore(s.core) }

// begin notes that a call is under way, unless the store is closed.
func (s *Store) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return jobstore.ErrClosed
	}
	s.under++
	return nil
}

func (s *Store) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.under--; s.under == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// enter waits for the table.
func (c *core) enter(ctx context.Context) error {
	if ctx.Err() == nil {
		select {
		case c.turn <- struct{}{}:
			return nil
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("memjobs: %w: %w", jobstore.ErrUnavailable, context.Cause(ctx))
}

func (c *core) leave() { <-c.turn }

// Update implements [jobstore.Store].
func (s *Store) Update(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	names, woken, err := s.core.update(ctx, fn)
	if woken {
		s.core.wake(names)
	}
	return err
}

// Single implements [jobstore.Store]. It is Update: there are no trips to be saved.
func (s *Store) Single(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	return s.Update(ctx, fn)
}

// update runs fn and undoes what it has done if it fails, or panics. woken says that jobs were given a Due, and names whose.
func (c *core) update(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) (names []string, woken bool, err error) {
	if err := c.enter(ctx); err != nil {
		return nil, false, err
	}
	defer c.leave()
	tx := &tx{core: c}
	tx.finder = finder{tx}
	committed := false
	defer func() {
		tx.over = true
		if !committed {
			tx.rollback()
		}
	}()
	if err := fn(ctx, tx); err != nil {
		return nil, false, err
	}
	if tx.spoilt != nil {
		return nil, false, tx.spoilt
	}
	committed = true
	if len(*c.listeners()) > 0 {
		names, woken = tx.woken()
	}
	return names, woken, nil
}

// View implements [jobstore.Store]. Between two calls of the transaction others may change jobs.
func (s *Store) View(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	if ctx.Err() != nil {
		return fmt.Errorf("memjobs: %w: %w", jobstore.ErrUnavailable, context.Cause(ctx))
	}
	v := &view{core: s.core}
	v.finder = finder{v}
	defer v.end()
	return fn(ctx, v)
}

// Coming implements [jobstore.Store].
func (s *Store) Coming(ctx context.Context, since time.Time, max int) (jobstore.Coming, error) {
	if err := s.begin(); err != nil {
		return jobstore.Coming{}, err
	}
	defer s.end()
	if err := s.core.enter(ctx); err != nil {
		return jobstore.Coming{}, err
	}
	defer s.core.leave()
	return s.core.table.coming(since, s.core.time(), max), nil
}

// time is the store's time, in the precision in which it keeps times. Who calls it holds the table.
func (c *core) time() time.Time { return exact(c.now()) }

// exact is a time as it is kept.
func exact(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

// Watch implements [jobstore.Store]. wake is called by whoever has committed. Close of this store ends it, too.
func (s *Store) Watch(wake func(names []string)) (stop func()) {
	w := &watcher{wake}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return func() {}
	}
	s.stops[w] = struct{}{}
	s.core.change(func(ws []*watcher) []*watcher { return append(ws, w) })
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, ok := s.stops[w]; ok {
			delete(s.stops, w)
			s.core.drop(w)
		}
	}
}

func (c *core) listeners() *[]*watcher {
	if ws := c.watchers.Load(); ws != nil {
		return ws
	}
	return &[]*watcher{}
}

func (c *core) change(how func([]*watcher) []*watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ws := how(slices.Clone(*c.listeners()))
	c.watchers.Store(&ws)
}

func (c *core) drop(w *watcher) {
	c.change(func(ws []*watcher) []*watcher {
		return slices.DeleteFunc(ws, func(other *watcher) bool { return other == w })
	})
}

func (c *core) wake(names []string) {
	for _, w := range *c.listeners() {
		w.wake(slices.Clone(names))
	}
}

// Close implements [jobstore.Store]. The jobs stay, for stores that were joined.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for w := range s.stops {
		s.core.drop(w)
	}
	clear(s.stops)
	if s.under == 0 {
		s.mu.Unlock()
		return nil
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
