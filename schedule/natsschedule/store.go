package natsschedule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
)

// Store stores a schedule in NATS. Make one with [New] and close it with Close. Safe for concurrent
// use.
type Store struct {
	conn           *natsconn.Conn
	name           string
	stream, prefix string
	replicas       int
	backoff        task.Backoff
	opened         atomic.Bool // the stream exists
	ttl            atomic.Bool // the server expires messages

	ctx     context.Context // for follow; ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	following bool
	cache     *table
	fresh     bool      // the cache is complete and up to date
	seq       uint64    // the cache has all messages up to this one
	created   time.Time // when the cache's stream was created
	reload    func()    // makes follow read the stream again
	changed   chan struct{}
	waiting   bool // a call waits for changed
	watchers  map[int]func()
	watched   int
}

var (
	_ schedule.Store    = (*Store)(nil)
	_ schedule.Lister   = (*Store)(nil)
	_ schedule.Pauser   = (*Store)(nil)
	_ schedule.Repairer = (*Store)(nil)
	_ schedule.Watcher  = (*Store)(nil)
	_ schedule.Changer  = (*Store)(nil)
	_ schedule.Named    = (*Store)(nil)
)

// Name returns the schedule's name. See [schedule.Named].
func (s *Store) Name() string { return s.name }

// Close ends waiting calls, closes the connection and waits for the goroutine that follows the
// stream. It returns the error of ctx if ctx ends first. Close is idempotent. It takes s.mu, but
// not while it waits.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	err := s.conn.Close(ctx)
	s.running.Wait() // returns soon: its ctx and its connection have ended
	return err
}

// wrap returns err with the operation what in its text. It adds [schedule.ErrClosed] after Close,
// [schedule.ErrBadEntry] if an entry is larger than the server allows, and otherwise
// [schedule.ErrUnavailable]. nil and [schedule.ErrNotFound] stay as they are.
func wrap(what string, err error) error {
	var class error
	switch {
	case err == nil, errors.Is(err, schedule.ErrNotFound):
		return err
	case errors.Is(err, natsconn.ErrClosed):
		class = schedule.ErrClosed
	case errors.Is(err, natsconn.ErrTooLarge):
		class = schedule.ErrBadEntry // the entry is larger than the server's max_payload
	default:
		class = schedule.ErrUnavailable
	}
	return fmt.Errorf("natsschedule %s: %w: %w", what, class, err)
}

// Due implements [schedule.Store]: it returns up to max due ticks without a valid claim, the
// longest overdue first, and changes nothing. Like all calls, it first waits until the copy in
// memory is up to date, see sync, and then takes s.mu. Errors are wrapped by wrap.
func (s *Store) Due(ctx context.Context, max int) (schedule.Batch, error) {
	now, err := s.sync(ctx)
	if err != nil {
		return schedule.Batch{}, wrap("due", err)
	}
	defer s.mu.Unlock()
	return s.cache.due(now, max), nil
}

// Get implements [schedule.Lister]: it returns a copy of an entry, or [schedule.ErrNotFound]. It
// waits as Due does and takes s.mu. Other errors are wrapped by wrap.
func (s *Store) Get(ctx context.Context, id string) (schedule.Entry, error) {
	if _, err := s.sync(ctx); err != nil {
		return schedule.Entry{}, wrap("get", err)
	}
	defer s.mu.Unlock()
	if r, _ := s.cache.get(id); r != nil {
		return r.entry(), nil
	}
	return schedule.Entry{}, schedule.ErrNotFound
}

// List implements [schedule.Lister]: it returns up to limit entries, at least one, sorted by id,
// and the cursor of the next page; "" after the last page. A page may have fewer entries because
// removed ones are left out. It waits as Due does and takes s.mu. Errors are wrapped by wrap.
func (s *Store) List(ctx context.Context, cursor string, limit int) ([]schedule.Entry, string, error) {
	if _, err := s.sync(ctx); err != nil {
		return nil, "", wrap("list", err)
	}
	defer s.mu.Unlock()
	page, next := s.cache.list(cursor, max(limit, 1))
	return page, next, nil
}

// Unscheduled implements [schedule.Repairer]: it returns the entries that would never become due.
// They have no due time and no claim and are not paused. It waits as Due does and takes s.mu.
// Errors are wrapped by wrap.
func (s *Store) Unscheduled(ctx context.Context) ([]schedule.Entry, error) {
	if _, err := s.sync(ctx); err != nil {
		return nil, wrap("unscheduled", err)
	}
	defer s.mu.Unlock()
	var found []schedule.Entry
	for _, k := range s.cache.entries {
		if k.rec.unscheduled() {
			found = append(found, k.rec.entry())
		}
	}
	return found, nil
}

// Watch implements [schedule.Watcher]: it calls wake when something is due earlier than before, or
// when the whole stream was read again. wake runs on the goroutine that received or stored the
// change. Watch starts to follow the stream. stop removes wake; a call in progress may still
// follow. Both take s.mu.
func (s *Store) Watch(wake func()) (stop func()) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched++
	n := s.watched
	s.watchers[n] = wake
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, n)
	}
}

// wake calls all watchers on the calling goroutine. It takes s.mu to read them. Call it without
// s.mu held, because a watcher may call a method of s.
func (s *Store) wake() {
	s.mu.Lock()
	calls := slices.Collect(maps.Values(s.watchers))
	s.mu.Unlock()
	for _, call := range calls {
		call()
	}
}
