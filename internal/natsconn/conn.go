package natsconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/netconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// Conn is a connection that is made again after each loss. All methods are safe for concurrent use.
type Conn struct {
	cfg    natsconnect.Config
	name   string
	logger *slog.Logger
	live   atomic.Pointer[Session] // current session, or nil
	max    atomic.Int64            // the server's largest message in bytes, as last announced
	pubs   publisher

	mu       sync.Mutex
	started  bool
	closing  bool          // Close was called
	closed   bool          // no operation may begin any more
	ended    chan struct{} // closed when Close has finished
	gen      uint64
	refusals int // consecutive attempts that the server refused
	lastErr  error
	dialErr  error      // why the last attempt reached no server; the client library drops it
	nc       *nats.Conn // set at the first success
	js       jetstream.JetStream
	socks    map[*netconn.Socket]struct{} // open sockets, also those in a handshake
	sock     *netconn.Socket              // the newest
	changed  chan struct{}                // closed and replaced when any of these fields changes
	doing    map[*doing]struct{}          // running calls of Do
	watchers netconn.Watchers

	ctx    context.Context // ends with Close; for the goroutines of the Conn
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

// Session is one connection to one server, from its handshake to its loss. The client library keeps
// only subscriptions for the next session.
type Session struct {
	Gen        uint64 // 1 for the first session, then counting up
	NATS       *nats.Conn
	JetStream  jetstream.JetStream
	MaxPayload int64 // in bytes, headers included
	Version    string

	sock *netconn.Socket
	done chan struct{}
	err  error // set before done is closed
}

// Done returns a channel that is closed when the connection is lost or closed.
func (s *Session) Done() <-chan struct{} { return s.done }

// New checks cfg and returns a Conn that connects at its first use. It returns all problems of cfg
// in one error.
//
// The server shows the configured name followed by purpose. The logger receives only one warning,
// about TLS without verification, before the first connection. Nil: slog.Default().
func New(cfg natsconnect.Config, purpose string, logger *slog.Logger) (*Conn, error) {
	if err := check(cfg); err != nil {
		return nil, err
	}
	if logger == nil {
		logger = slog.Default()
	}
	if cfg.PingInterval == 0 {
		cfg.PingInterval = DefaultPingInterval
	}
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = DefaultDialTimeout
	}
	c := &Conn{
		cfg: cfg, name: strings.TrimSpace(cmp.Or(cfg.Name, "swarmiji") + " " + purpose), logger: logger, changed: make(chan struct{}), socks: make(map[*netconn.Socket]struct{}),
		doing: make(map[*doing]struct{}),
		ended: make(chan struct{}),
	}
	c.pubs.init()
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Session returns the current session. Without one it waits for the next session; the first such
// call starts the goroutine that connects. It takes c.mu, but does not hold it while it waits.
//
// Returns [ErrUnavailable] with ctx's error when ctx ends first, and [ErrClosed] after Close.
// Returns [ErrAccess] while the server refuses the credentials: at once if it never accepted them,
// otherwise after the second refusal in a row.
func (c *Conn) Session(ctx context.Context) (*Session, error) {
	for {
		if s := c.live.Load(); s != nil {
			return s, nil
		}
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, ErrClosed
		}
		if s := c.live.Load(); s != nil {
			c.mu.Unlock()
			return s, nil
		}
		if !c.started {
			c.started = true
			c.tasks.Go(c.connect)
		}
		// A server that accepted the credentials before and refuses once may still be starting.
		if c.refusals > 1 || c.refusals == 1 && c.gen == 0 {
			err := c.lastErr
			c.mu.Unlock()
			return nil, err
		}
		changed, last := c.changed, c.lastErr
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, c.unavailable(ctx, last)
		}
	}
}

// Live returns the current session, or nil while the connection is lost. It does not connect.
func (c *Conn) Live() *Session { return c.live.Load() }

// MaxPayload returns the largest message in bytes, headers included, that the server last
// announced. 0: not connected yet.
func (c *Conn) MaxPayload() int64 { return c.max.Load() }

// NATS returns the client library's connection. It waits and fails like Session. Do not close the
// connection.
func (c *Conn) NATS(ctx context.Context) (*nats.Conn, error) {
	s, err := c.Session(ctx)
	if err != nil {
		return nil, err
	}
	return s.NATS, nil
}

// JetStream returns the client library's JetStream. It waits and fails like Session. Its calls wait
// until ctx ends if the connection is lost; use Do to avoid that.
func (c *Conn) JetStream(ctx context.Context) (jetstream.JetStream, error) {
	s, err := c.Session(ctx)
	if err != nil {
		return nil, err
	}
	return s.JetStream, nil
}

// errLost is the cause of a Do that ended with the connection.
var errLost = errors.New("connection lost")

// doing is a running call of Do.
type doing struct{ cancel context.CancelCauseFunc }

// Do calls fn with the current session, and waits for one before, as Session does. The ctx of fn
// ends when ctx or the session ends. No lock is held during fn; Do takes c.mu before and after.
//
//   - No session: the error of Session. fn returns nil: nil.
//   - fn fails after the session ended, and ctx has not ended: [ErrIndeterminate].
//   - The server refuses a request of the JetStream API: all running Do calls return [ErrAccess].
//     The server does not answer a refused request and does not tell which one it was.
//   - fn fails otherwise: its error with the matching class.
func (c *Conn) Do(ctx context.Context, fn func(ctx context.Context, s *Session) error) error {
	s, err := c.Session(ctx)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(ctx)
	d := &doing{cancel}
	c.mu.Lock()
	c.doing[d] = struct{}{}
	if s.ended() {
		cancel(fmt.Errorf("%w: %w", errLost, s.err))
	}
	c.mu.Unlock()
	err = fn(inner, s)
	c.mu.Lock()
	delete(c.doing, d)
	c.mu.Unlock()
	defer cancel(nil)
	if cause := context.Cause(inner); err != nil && cause != nil && ctx.Err() == nil {
		if errors.Is(cause, ErrAccess) {
			return cause
		}
		return fmt.Errorf("%w: %w", ErrIndeterminate, cause)
	}
	return Classify(err)
}

// ended reports whether the session has ended. It does not wait.
func (s *Session) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// cancelCalls ends the ctx of all running Do calls with cause. Call it with c.mu held.
func (c *Conn) cancelCalls(cause error) {
	for d := range c.doing {
		d.cancel(cause)
	}
}

// connect makes the first connection, with backoff until it succeeds or the Conn is closed. From
// then on the client library reconnects. It logs once if TLS does not verify the server. It is the
// goroutine that Session starts. It takes c.mu to record a failure.
func (c *Conn) connect() {
	warned := false
	for attempt := 0; c.ctx.Err() == nil; attempt++ {
		if c.cfg.TLS != nil && c.cfg.TLS.InsecureSkipVerify && !warned {
			warned = true
			c.logger.Warn("nats: TLS without verification of the server's certificate")
		}
		err := c.connectOnce()
		if err == nil {
			return
		}
		c.mu.Lock()
		c.recordFailure(err)
		c.mu.Unlock()
		if !wake.Sleep(c.ctx, c.cfg.Backoff.Interval(attempt)) {
			return
		}
	}
}

// connectOnce makes one attempt to connect and begins the first session. It blocks while it dials,
// and takes c.mu afterwards. Returns the classified error of a failed attempt. If the Conn was
// closed meanwhile, it closes the connection and returns ErrClosed.
func (c *Conn) connectOnce() error {
	opts, err := c.options()
	if err != nil {
		return c.unusable(ErrAccess, err)
	}
	o := nats.GetDefaultOptions()
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return c.unusable(ErrAccess, err)
		}
	}
	nc, err := o.Connect()
	if err != nil {
		return c.unusable(classOf(err), err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return fmt.Errorf("nats connect: %w", err)
	}
	c.mu.Lock()
	closed := c.closed
	c.nc, c.js = nc, js
	c.mu.Unlock()
	if closed { // Close has not seen this connection, and the library would dial forever
		nc.Close()
		return fmt.Errorf("nats connect: %w", ErrClosed)
	}
	c.connected(nc)
	return nil
}

// recordFailure stores the error of a failed attempt to connect in c.lastErr, and notifies waiting
// calls and watchers. It counts refused credentials in a row in c.refusals; any other error resets
// that count. Call it with c.mu held.
func (c *Conn) recordFailure(err error) {
	c.lastErr = err
	if errors.Is(err, ErrAccess) {
		c.refusals++
	} else {
		c.refusals = 0
	}
	c.notify()
}

// connected begins a session on the newest socket, if that is still open and belongs to no session
// yet. It stores the session in c.live and the server's limit in c.max, clears c.refusals and
// c.lastErr, and notifies waiting calls and watchers. The client library calls it after each
// reconnect. It takes c.mu.
func (c *Conn) connected(nc *nats.Conn) {
	maxPayload, version := nc.MaxPayload(), nc.ConnectedServerVersion()
	c.max.Store(maxPayload)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.socks[c.sock]; !open || c.closed || c.nc == nil {
		return
	}
	if s := c.live.Load(); s != nil && s.sock == c.sock {
		return
	}
	c.gen++
	c.refusals, c.lastErr = 0, nil
	c.live.Store(&Session{
		Gen: c.gen, NATS: nc, JetStream: c.js, MaxPayload: maxPayload, Version: version, sock: c.sock, done: make(chan struct{}),
	})
	c.notify()
}

// lost removes sock from c.socks and ends its session, or the current one if sock is nil. It closes
// the session's done, cancels the running calls of Do, and ends the pending publishes with
// ErrIndeterminate. It stores the reason in c.lastErr and notifies waiting calls and watchers.
// Without such a session, a later call only stores a better reason. It takes c.mu.
func (c *Conn) lost(sock *netconn.Socket, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sock != nil {
		delete(c.socks, sock)
	}
	s := c.live.Load()
	switch {
	case s != nil && (sock == nil || s.sock == sock):
		if err == nil {
			err = errLost
		}
		c.live.Store(nil)
		c.lastErr = Classify(err)
		if c.closed {
			c.lastErr = ErrClosed
		}
		s.err = c.lastErr
		close(s.done)
		c.cancelCalls(fmt.Errorf("%w: %w", errLost, s.err))
		c.pubs.fail(s.err)
		c.notify()
	case s == nil && sock == nil && err != nil && errors.Is(c.lastErr, errLost):
		c.lastErr = err
		c.notify()
	}
}

// asyncError handles errors that the server sends without a request. It fails the operations on a
// refused subject, and records refused credentials; it ignores other errors. The client library
// calls it. It takes c.mu.
func (c *Conn) asyncError(_ *nats.Conn, _ *nats.Subscription, err error) {
	switch {
	case err == nil:
	case errors.Is(err, nats.ErrPermissionViolation):
		c.refused(quoted(err.Error()), fmt.Errorf("%w: %w", ErrAccess, err))
	case errors.Is(Classify(err), ErrAccess):
		c.mu.Lock()
		c.recordFailure(Classify(err))
		c.mu.Unlock()
	}
}

// refused fails the operations that a refused subject concerns, with err. For the inbox these are
// all pending publishes, for the JetStream API all running Do calls. For any other subject these
// are the pending publishes to it. It takes c.mu or the mutex of c.pubs.
func (c *Conn) refused(subject string, err error) {
	switch {
	case strings.HasPrefix(subject, c.pubs.prefix): // the inbox: no answer can arrive
		c.pubs.fail(err)
	case strings.HasPrefix(subject, "$JS.API."):
		c.mu.Lock()
		c.cancelCalls(err)
		c.mu.Unlock()
	default:
		c.pubs.refuse(subject, err)
	}
}

// quoted returns the text between the first two double quotes of s. It returns "" if s has no
// quotes.
func quoted(s string) string {
	_, rest, _ := strings.Cut(s, `"`)
	in, _, _ := strings.Cut(rest, `"`)
	return in
}

// Close sends the buffered data, closes the connection and ends all waiting calls. It waits until
// the server has received the data, for at most 5 s, and returns ctx's error if ctx ends first.
// Data lost with the connection is not an error. Further calls wait for the same end and return
// nil, or ctx's error. No goroutine of the Conn runs after the first call returned. It takes c.mu,
// but does not hold it while it waits.
func (c *Conn) Close(ctx context.Context) error {
	c.mu.Lock()
	first := !c.closing
	c.closing = true
	c.mu.Unlock()
	if !first {
		select {
		case <-c.ended:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("nats closing: %w", ctx.Err())
		}
	}
	defer close(c.ended)
	var err error
	// data lost with the connection is not an error
	if c.live.Load() != nil && c.Flush(ctx) != nil && ctx.Err() != nil {
		err = fmt.Errorf("nats closing: %w", ctx.Err())
	}
	c.mu.Lock()
	c.closed = true
	c.notify()
	c.watchers.Close()
	c.cancel()
	nc := c.nc
	socks := make([]*netconn.Socket, 0, len(c.socks))
	for s := range c.socks {
		socks = append(socks, s)
	}
	c.mu.Unlock()
	for _, s := range socks {
		_ = s.Close() // ends a handshake that holds the library's lock
	}
	if nc != nil {
		nc.Close()
	}
	c.tasks.Wait()
	c.watchers.Drop()
	return err
}

// Flush waits until the server has read all data written on the current connection, until ctx ends
// and for at most 5 s. It takes c.mu, but does not hold it while it waits. Returns [ErrUnavailable]
// at once without a connection, [ErrClosed] after Close. Returns [ErrIndeterminate] if the wait
// fails or the session ends.
func (c *Conn) Flush(ctx context.Context) error {
	s := c.live.Load()
	if s == nil {
		return ErrUnavailable
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.tasks.Go(func() { ended <- s.NATS.FlushWithContext(ctx) })
	c.mu.Unlock()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("nats flush: %w: %w", ErrIndeterminate, err)
		}
		return nil
	case <-s.done:
		return fmt.Errorf("nats flush: %w: %w", ErrIndeterminate, s.err)
	}
}

// AtLeast reports whether the server's version is at least major.minor. It returns false for a
// version that cannot be parsed.
func (s *Session) AtLeast(major, minor int) bool {
	var a, b int
	if n, err := fmt.Sscanf(s.Version, "%d.%d", &a, &b); err != nil || n != 2 {
		return false
	}
	return a > major || a == major && b >= minor
}
