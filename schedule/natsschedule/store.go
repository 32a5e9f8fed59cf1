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

// Store keeps a schedule in NATS. Make one with [New], and end it with Close. All methods may be called from any goroutine.
type Store struct {
	conn           *natsconn.Conn
	name           string
	stream, prefix string
	replicas       int
	backoff        task.Backoff
	opened         atomic.Bool // the stream is there
	ttl            atomic.Bool // the server removes messages at their time

	ctx     context.Context // ends with Close; of the goroutine that follows
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	following bool
	copy      *table
	ready     bool      // the copy is complete, and followed
	seq       uint64    // up to which it is
	created   time.Time // of the stream that it is of
	reload    func()    // has it made anew
	bump      chan struct{}
	waiting   bool // for bump
	watchers  map[int]func()
	watched   int
}

var (
	_ schedule.Store   = (*Store)(nil)
	_ schedule.Lister  = (*Store)(nil)
	_ schedule.Pauser  = (*Store)(nil)
	_ schedule.Mender  = (*Store)(nil)
	_ schedule.Watcher = (*Store)(nil)
	_ schedule.Named   = (*Store)(nil)
)

// Name implements [schedule.Named].
func (s *Store) Name() string { return s.name }

// Close ends what waits, and the connection; when ctx ends before, its error is returned. It is idempotent.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	err := s.conn.Close(ctx)
	s.running.Wait() // its ctx has ended, and so has its connection
	return err
}

// wrap puts the port's error beside the client's.
func wrap(what string, err error) error {
	var class error
	switch {
	case err == nil, errors.Is(err, schedule.ErrNotFound):
		return err
	case errors.Is(err, natsconn.ErrClosed):
		class = schedule.ErrClosed
	case errors.Is(err, natsconn.ErrTooLarge):
		class = schedule.ErrBadEntry // the server's max_payload is lower than the entry is long
	default:
		class = schedule.ErrUnavailable
	}
	return fmt.Errorf("natsschedule %s: %w: %w", what, class, err)
}

// Due implements [schedule.Store].
func (s *Store) Due(ctx context.Context, max int) (schedule.Batch, error) {
	now, err := s.sync(ctx)
	if err != nil {
		return schedule.Batch{}, wrap("due", err)
	}
	defer s.mu.Unlock()
	return s.copy.due(now, max), nil
}

// Get implements [schedule.Lister].
func (s *Store) Get(ctx context.Context, id string) (schedule.Entry, error) {
	if _, err := s.sync(ctx); err != nil {
		return schedule.Entry{}, wrap("get", err)
	}
	defer s.mu.Unlock()
	if r, _ := s.copy.get(id); r != nil {
		return r.entry(), nil
	}
	return schedule.Entry{}, schedule.ErrNotFound
}

// List implements [schedule.Lister]. Entries come in the order of their ids.
func (s *Store) List(ctx context.Context, cursor string, limit int) ([]schedule.Entry, string, error) {
	if _, err := s.sync(ctx); err != nil {
		return nil, "", wrap("list", err)
	}
	defer s.mu.Unlock()
	page, next := s.copy.list(cursor, max(limit, 1))
	return page, next, nil
}

// Astray implements [schedule.Mender].
func (s *Store) Astray(ctx context.Context) ([]schedule.Entry, error) {
	if _, err := s.sync(ctx); err != nil {
		return nil, wrap("astray", err)
	}
	defer s.mu.Unlock()
	var found []schedule.Entry
	for _, k := range s.copy.entries {
		if k.rec.astray() {
			found = append(found, k.rec.entry())
		}
	}
	return found, nil
}

// Watch implements [schedule.Watcher].
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

// wake calls the watchers, outside of the lock, which they may want.
func (s *Store) wake() {
	s.mu.Lock()
	calls := slices.Collect(maps.Values(s.watchers))
	s.mu.Unlock()
	for _, call := range calls {
		call()
	}
}
