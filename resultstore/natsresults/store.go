package natsresults

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Store keeps records in a stream. It has one connection, opened when it is first used. All methods may be called from any
// goroutine.
type Store struct {
	cfg      Config
	names    names
	conn     *natsconn.Conn
	stream   atomic.Pointer[stream] // nil: not known, or not there
	opening  chan struct{}          // held by who makes the stream
	gathers  [turns]chan struct{}   // held by an arrival at a group
	seed     maphash.Seed           // of the turn that a group has
	shortens chan struct{}          // held by a goroutine of shorten
	tooOld   atomic.Bool            // the server was asked for times of messages
	warnOnce sync.Once
	now      context.Context // has ended: for what must not wait
	try      time.Duration   // oneTry; tests wait less
	recent   recent

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // under way
	done   chan struct{}  // closed by Close
}

// New checks c and makes a Store. It does no I/O and starts nothing. All problems of c are reported together.
func New(c Config) (*Store, error) {
	c, err := c.complete()
	conn, connErr := natsconn.New(c.Connect, "", c.Logger)
	if err := errors.Join(err, connErr); err != nil {
		return nil, err
	}
	c.Connect.URLs = nil // they hold passwords and are not needed any more
	s := &Store{
		cfg: c, names: namesOf(c.Namespace), conn: conn, opening: make(chan struct{}, 1), shortens: make(chan struct{}, maxShortens), done: make(chan struct{}),
		try: oneTry, seed: maphash.MakeSeed(),
	}
	for i := range s.gathers {
		s.gathers[i] = make(chan struct{}, 1)
	}
	var end context.CancelFunc
	s.now, end = context.WithCancel(context.Background())
	end()
	return s, nil
}

// check refuses what no call is for.
func check(ctx context.Context, id task.ID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return id.Check()
}

// begin notes that a call is under way, until end. It reports whether the store is open.
func (s *Store) begin() (open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.calls.Add(1)
	}
	return !s.closed
}

func (s *Store) end() { s.calls.Done() }

// Load implements [resultstore.ResultStore]. Besides its errors it returns [task.ErrBadID], and [resultstore.ErrMalformed] for
// a message that is no record.
func (s *Store) Load(ctx context.Context, id task.ID) (resultstore.Record, error) {
	if err := check(ctx, id); err != nil {
		return resultstore.Record{}, err
	}
	if !s.begin() {
		return resultstore.Record{}, resultstore.ErrClosed
	}
	defer s.end()
	var k kept
	err := s.withStream(ctx, func(st *stream) (err error) {
		k, err = s.fetch(ctx, st, id)
		return err
	})
	if err != nil {
		return resultstore.Record{}, failure("load", err)
	}
	if k.seq == 0 || k.over {
		return resultstore.Record{}, resultstore.ErrNotFound
	}
	return k.rec, nil
}

// Delete implements [resultstore.ResultStore].
func (s *Store) Delete(ctx context.Context, id task.ID) error {
	if err := check(ctx, id); err != nil {
		return err
	}
	if !s.begin() {
		return resultstore.ErrClosed
	}
	defer s.end()
	s.recent.forget(id)
	return failure("delete", s.withStream(ctx, func(*stream) error {
		_, err := s.conn.Purge(ctx, s.names.stream, s.names.record(id))
		return err
	}))
}

// withStream calls fn with the stream. When the stream turns out to be gone it is made again.
func (s *Store) withStream(ctx context.Context, fn func(st *stream) error) error {
	for attempt := 0; ; attempt++ {
		st, err := s.open(ctx)
		if err != nil {
			return err
		}
		err = fn(st)
		if !errors.Is(err, natsconn.ErrNoStream) || attempt > 0 && !pause(ctx, attempt) {
			return err
		}
		s.stream.CompareAndSwap(st, nil)
	}
}

// Close implements [resultstore.ResultStore]: it ends all streams of notifications, waits until the calls under way have
// returned, and closes the connection. When ctx ends first the connection is cut and the error is ctx's.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	s.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		s.calls.Wait()
		close(idle)
	}()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = fmt.Errorf("nats results: closing: %w", ctx.Err())
	}
	_ = s.conn.Close(ctx) // all calls have their answers; what it may not get out are notifications, which are a hint
	<-idle                // nothing holds a call up once its connection is closed
	return err
}

// failure puts the port's class beside a connection's error.
func failure(what string, err error) error {
	var class error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, resultstore.ErrStale), errors.Is(err, resultstore.ErrMalformed), errors.Is(err, resultstore.ErrTooLarge):
		return fmt.Errorf("nats result %s: %w", what, err)
	case errors.Is(err, natsconn.ErrTooLarge):
		class = resultstore.ErrTooLarge
	case errors.Is(err, natsconn.ErrUnavailable): // the reason beside it may be that a connection was closed, which is not for good
		class = resultstore.ErrUnavailable
	case errors.Is(err, natsconn.ErrClosed):
		class = resultstore.ErrClosed
	default: // also when the record may have been stored: saving it again is safe
		class = resultstore.ErrUnavailable
	}
	return fmt.Errorf("nats result %s: %w: %w", what, class, err)
}

var (
	_ resultstore.ResultStore = (*Store)(nil)
	_ resultstore.Notifier    = (*Store)(nil)
)
