// Package memjobs stores jobs in the memory of the process. It is for tests, examples, and programs
// whose jobs may be lost at their end.
//
// One transaction runs at a time. Indexes find due jobs, so that claiming one of a million jobs
// takes microseconds. The package starts no goroutine and waits only on channels, so it can be used
// in testing/synctest.
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

// Config configures [New]. The zero value is valid.
type Config struct {
	// Now is the clock. One goroutine at a time calls it. nil: time.Now.
	Now func() time.Time
}

// Store implements [jobstore.Store] in memory. Create one with [New], and further stores over the
// same jobs with Join. All methods are safe for concurrent use. The function of a transaction must
// not call them, since the call would block forever.
type Store struct {
	core *core

	mu      sync.Mutex
	closed  bool
	running int           // running calls
	idle    chan struct{} // closed at the end of the last running call; nil while Close does not wait
	stops   map[*watcher]struct{}
}

// core contains the state that joined stores share.
type core struct {
	token chan struct{} // a mutex with a ctx: the goroutine whose element it contains uses the table
	table *table
	now   func() time.Time

	mu       sync.Mutex
	watchers atomic.Pointer[[]*watcher] // replaced, never changed
}

// watcher is one registration of Watch. Its address identifies it.
type watcher struct{ wake func(names []string) }

var _ jobstore.Store = (*Store)(nil)

// New returns a store without jobs. A nil Config.Now means time.Now. The error is always nil. It
// starts no goroutine.
func New(c Config) (*Store, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	return newStore(&core{token: make(chan struct{}, 1), table: newTable(), now: c.Now}), nil
}

// newStore returns a store over c.
func newStore(c *core) *Store { return &Store{core: c, stops: map[*watcher]struct{}{}} }

// Join returns another store over the same jobs, like the store of another process. Close each
// store separately. The jobs live as long as any of the stores is referenced.
func (s *Store) Join() *Store { return newStore(s.core) }

// begin counts a running call, for which Close then waits. Call end after the call. Returns
// ErrClosed, and counts nothing, after Close. It takes s.mu.
func (s *Store) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return jobstore.ErrClosed
	}
	s.running++
	return nil
}

// end records the end of a running call that begin has counted. The end of the last running call
// wakes a waiting Close. It takes s.mu.
func (s *Store) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running--; s.running == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// lock blocks until no other goroutine uses the table; unlock ends the use. Returns ErrUnavailable,
// without the lock, if ctx ends first or has ended before.
func (c *core) lock(ctx context.Context) error {
	if ctx.Err() == nil {
		select {
		case c.token <- struct{}{}:
			return nil
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("memjobs: %w: %w", jobstore.ErrUnavailable, context.Cause(ctx))
}

// unlock lets the next goroutine use the table.
func (c *core) unlock() { <-c.token }

// Update runs fn in a transaction, the only one at a time. After the commit it calls the watchers
// in this goroutine, with the table unlocked. It blocks while another transaction runs. An error
// or a panic of fn undoes all changes. fn runs once.
//
// Returns the error of fn, or the first error of a method of tx that prevents the commit. Returns
// ErrClosed after Close, and ErrUnavailable if ctx ends before fn begins. The end of ctx during fn
// makes the next call of tx return ErrUnavailable. It implements [jobstore.Store].
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

// Single is Update, since no round trips can be saved. It implements [jobstore.Store].
func (s *Store) Single(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	return s.Update(ctx, fn)
}

// update runs fn with the table locked, and unlocks it at the end. If fn fails or panics, or if a
// method of tx has failed, it undoes all changes and returns the error. woken reports that watchers
// must be called with names; nil names mean any name. The caller calls them, after the table is
// unlocked.
func (c *core) update(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) (names []string, woken bool, err error) {
	if err := c.lock(ctx); err != nil {
		return nil, false, err
	}
	defer c.unlock()
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
	if tx.failed != nil {
		return nil, false, tx.failed
	}
	committed = true
	if len(c.listeners()) > 0 {
		names, woken = tx.notifications()
	}
	return names, woken, nil
}

// View runs fn once, with a transaction that only reads, and returns the error of fn. Each call of
// tx locks the table for itself, so jobs may change between two calls. Methods of tx that write
// return ErrUnsupported. After fn has returned, reads return ErrClosed. Returns ErrClosed after
// Close, and ErrUnavailable if ctx has ended before. It implements [jobstore.Store].
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

// Coming returns up to max names of jobs that became due after since, in the order of Due, and the
// next Due after now. A zero since returns no names. It ignores jobs of queues. It waits for the
// lock of the table and holds it while it reads.
//
// Returns ErrClosed after Close, and ErrUnavailable if ctx ends during the wait. It implements
// [jobstore.Store].
func (s *Store) Coming(ctx context.Context, since time.Time, max int) (jobstore.Coming, error) {
	if err := s.begin(); err != nil {
		return jobstore.Coming{}, err
	}
	defer s.end()
	if err := s.core.lock(ctx); err != nil {
		return jobstore.Coming{}, err
	}
	defer s.core.unlock()
	return s.core.table.coming(since, s.core.time(), max), nil
}

// time returns the store's time in microseconds. Call it with the table locked.
func (c *core) time() time.Time { return exact(c.now()) }

// exact returns t as it is stored: in UTC, cut down to microseconds. A zero time stays zero.
func exact(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

// Watch registers wake, for commits through this store and all joined stores. The goroutine that
// has committed calls it, before its Update returns. stop, or Close of this store, ends the calls;
// stop is idempotent and does not wait for a running call. After Close it registers nothing. It
// takes s.mu. stop takes s.mu, too. It implements [jobstore.Store].
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

// listeners returns the registered watchers. The result must not be changed. It takes no lock.
func (c *core) listeners() []*watcher {
	if ws := c.watchers.Load(); ws != nil {
		return *ws
	}
	return nil
}

// change replaces the watchers by the result of how, which gets a copy of them. It takes c.mu.
func (c *core) change(how func([]*watcher) []*watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ws := how(slices.Clone(c.listeners()))
	c.watchers.Store(&ws)
}

// drop removes a watcher, and does nothing if it is not registered. It takes c.mu.
func (c *core) drop(w *watcher) {
	c.change(func(ws []*watcher) []*watcher {
		return slices.DeleteFunc(ws, func(other *watcher) bool { return other == w })
	})
}

// wake calls all watchers in this goroutine, each with its own copy of names. nil names mean any
// name. Call it with the table unlocked.
func (c *core) wake(names []string) {
	for _, w := range c.listeners() {
		w.wake(slices.Clone(names))
	}
}

// Close makes later calls return ErrClosed, ends the watches of this store, and waits for running
// calls. The jobs stay for joined stores. Returns nil, or the cause of ctx if ctx ends first.
// Idempotent. It takes s.mu, but does not hold it while it waits. It implements [jobstore.Store].
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for w := range s.stops {
		s.core.drop(w)
	}
	clear(s.stops)
	if s.running == 0 {
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
