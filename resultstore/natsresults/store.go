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

// Store keeps records in a JetStream stream. It opens its one connection at the first use. All
// methods are safe for concurrent use.
type Store struct {
	cfg     Config
	names   names
	conn    *natsconn.Conn
	stream  atomic.Pointer[stream] // nil: unknown or deleted
	opening chan struct{}          // held by the call that reads or makes the stream
	// groupLocks holds locks for arrivals; lockGroup selects one by the hash of the group.
	groupLocks [lockStripes]chan struct{}
	seed       maphash.Seed  // of the hash in lockGroup
	shortens   chan struct{} // held by each goroutine of shorten
	tooOld     atomic.Bool   // merge asked this server for AllowMsgTTL
	warnOnce   sync.Once
	noWait     context.Context // a context that has ended, for calls that must not wait
	try        time.Duration   // defaultTry, except in tests
	recent     recent

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // running calls
	done   chan struct{}  // closed by Close
}

// New checks c and makes a Store. It does no I/O and starts no goroutine. It returns all problems
// of c in one error.
func New(c Config) (*Store, error) {
	c, err := c.complete()
	conn, connErr := natsconn.New(c.Connect, "", c.Logger)
	if err := errors.Join(err, connErr); err != nil {
		return nil, err
	}
	c.Connect.URLs = nil // they hold passwords and are not needed any more
	s := &Store{
		cfg: c, names: namesOf(c.Namespace), conn: conn, opening: make(chan struct{}, 1), shortens: make(chan struct{}, maxShortens), done: make(chan struct{}),
		try: defaultTry, seed: maphash.MakeSeed(),
	}
	for i := range s.groupLocks {
		s.groupLocks[i] = make(chan struct{}, 1)
	}
	var end context.CancelFunc
	s.noWait, end = context.WithCancel(context.Background())
	end()
	return s, nil
}

// check returns ctx's error if ctx has ended, or [task.ErrBadID] if id is invalid.
func check(ctx context.Context, id task.ID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return id.Check()
}

// begin registers a running call, for which Close waits. It returns false after Close. If it
// returns true, call end when the call is done. It takes s.mu.
func (s *Store) begin() (open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.calls.Add(1)
	}
	return !s.closed
}

// end ends a call that begin registered.
func (s *Store) end() { s.calls.Done() }

// Load implements [resultstore.ResultStore]: it reads the record of task id. Returns ErrNotFound if
// no record exists or it has expired, and [resultstore.ErrMalformed] if the message is not its
// record.
//
// Returns [task.ErrBadID] for an invalid id, ErrClosed after Close, and ctx's error if ctx has
// already ended. While the outcome is unknown it repeats the call, until ctx ends; then it returns
// ErrUnavailable. It makes the stream if that does not exist.
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
	if k.seq == 0 || k.expired {
		return resultstore.Record{}, resultstore.ErrNotFound
	}
	return k.rec, nil
}

// Delete implements [resultstore.ResultStore]: it purges the messages of the record and of the
// checkpoints of task id.
// Returns nil if no record exists.
//
// Returns task.ErrBadID for an invalid id, ErrClosed after Close, and ctx's error if ctx has
// already ended. While the outcome is unknown it repeats the call, until ctx ends; then it returns
// ErrUnavailable. It makes the stream if that does not exist.
func (s *Store) Delete(ctx context.Context, id task.ID) error {
	if err := check(ctx, id); err != nil {
		return err
	}
	if !s.begin() {
		return resultstore.ErrClosed
	}
	defer s.end()
	s.recent.forget(id)
	err := s.withStream(ctx, func(*stream) error {
		_, err := s.conn.Purge(ctx, s.names.stream, s.names.record(id))
		return err
	})
	if err == nil {
		err = s.dropCheckpoints(ctx, id)
	}
	return failure("delete", err)
}

// withStream calls fn with the known settings of the stream, which it reads from the server if
// they are unknown or outdated. If fn reports that the stream does not exist, withStream makes the
// stream again and repeats fn, until ctx ends. Otherwise it returns the error of fn. Returns the
// error of open without a call of fn.
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

// Close implements [resultstore.ResultStore]. It ends all notification streams, waits until
// running calls have returned, and closes the connection. If ctx ends first it cuts the
// connection, waits until the calls return with errors, and returns ctx's error. It takes s.mu,
// but not while it waits.
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
	// Every call has its answer. Only notifications may be unsent, which are hints.
	_ = s.conn.Close(ctx)
	<-idle // no call blocks on a closed connection
	return err
}

// failure wraps err with the matching error of the port and the name of the operation. Errors
// without a match become ErrUnavailable. It returns nil for nil.
func failure(what string, err error) error {
	var class error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, resultstore.ErrStale), errors.Is(err, resultstore.ErrMalformed), errors.Is(err, resultstore.ErrTooLarge):
		return fmt.Errorf("nats result %s: %w", what, err)
	case errors.Is(err, natsconn.ErrTooLarge):
		class = resultstore.ErrTooLarge
	// its cause may be ErrClosed of one connection, which is replaced
	case errors.Is(err, natsconn.ErrUnavailable):
		class = resultstore.ErrUnavailable
	case errors.Is(err, natsconn.ErrClosed):
		class = resultstore.ErrClosed
	default: // the record may have been stored; saving it again is safe
		class = resultstore.ErrUnavailable
	}
	return fmt.Errorf("nats result %s: %w: %w", what, class, err)
}

var (
	_ resultstore.ResultStore = (*Store)(nil)
	_ resultstore.BatchSaver  = (*Store)(nil)
	_ resultstore.Notifier    = (*Store)(nil)
)
