package natsconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
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

// Conn is a connection that mends itself. All methods may be called from any goroutine.
type Conn struct {
	cfg    natsconnect.Config
	name   string
	logger *slog.Logger
	live   atomic.Pointer[Session] // the session while there is one
	max    atomic.Int64            // the server's largest message, as last told
	pubs   publisher

	mu       sync.Mutex
	started  bool
	closing  bool          // Close has been called
	closed   bool          // nothing may begin any more
	ended    chan struct{} // closed when Close has done its work
	gen      uint64
	refusals int // attempts in a row that the server refused
	lastErr  error
	nc       *nats.Conn // from the first success on
	js       jetstream.JetStream
	socks    map[*netconn.Socket]struct{} // those that are open, also during a handshake
	sock     *netconn.Socket              // the newest
	changed  chan struct{}                // closed and replaced when any of these changes
	doing    map[*doing]struct{}          // calls of Do that are under way
	watchers netconn.Watchers

	ctx    context.Context // ends with Close; of the goroutines that the Conn starts
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

// Session is one connection to one server, from its handshake to its loss. The client library carries subscriptions over
// to the next session, and nothing else.
type Session struct {
	Gen        uint64 // 1 for the first, rising
	NATS       *nats.Conn
	JetStream  jetstream.JetStream
	MaxPayload int64 // in bytes, headers included
	Version    string

	sock *netconn.Socket
	done chan struct{}
	err  error // set before done is closed
}

// Done is closed when the connection is lost or closed.
func (s *Session) Done() <-chan struct{} { return s.done }

// New checks cfg and returns a Conn that connects when it is first used. All problems of cfg are reported together.
//
// The server shows the purpose after the configured name. The logger is told of TLS without verification at the first connect,
// and of nothing else; nil: slog.Default().
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

// Session returns the connection, and waits for it if there is none. The error wraps [ErrUnavailable] and the ctx's error
// when ctx ends first, [ErrAccess] at once while the server refuses the credentials, or [ErrClosed].
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
		// One refusal of a server that has accepted us before may be a server that is still starting.
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
			return nil, unavailable(ctx, last)
		}
	}
}

// Live returns the present session, nil if there is none just now. It does not connect.
func (c *Conn) Live() *Session { return c.live.Load() }

// MaxPayload returns the largest message in bytes, headers included, that the server has last told to take; 0 before the first
// connection.
func (c *Conn) MaxPayload() int64 { return c.max.Load() }

func unavailable(ctx context.Context, last error) error {
	if last == nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
	return fmt.Errorf("%w: %w, the last attempt: %w", ErrUnavailable, context.Cause(ctx), last)
}

// NATS returns the client library's connection as Session does. It must not be closed.
func (c *Conn) NATS(ctx context.Context) (*nats.Conn, error) {
	s, err := c.Session(ctx)
	if err != nil {
		return nil, err
	}
	return s.NATS, nil
}

// JetStream returns the client library's JetStream as Session does. Its calls wait out ctx when the connection is lost; see
// Do.
func (c *Conn) JetStream(ctx context.Context) (jetstream.JetStream, error) {
	s, err := c.Session(ctx)
	if err != nil {
		return nil, err
	}
	return s.JetStream, nil
}

// errLost is why a Do ended before its ctx.
var errLost = errors.New("connection lost")

// doing is a call of Do that is under way.
type doing struct{ cancel context.CancelCauseFunc }

// Do calls fn with the present session, and waits for one. The ctx of fn ends when the session does. The error of fn has a
// class, where one fits; a ctx that ended within fn is [ErrIndeterminate], and [ErrAccess] at once if the server has refused a
// request of the JetStream API meanwhile: it answers none that it refuses, and it does not tell whose it was.
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

func (s *Session) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// undo ends all that Do has under way; c.mu is held.
func (c *Conn) undo(cause error) {
	for d := range c.doing {
		d.cancel(cause)
	}
}

// connect makes the first connection; from then on the client library keeps it.
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
		c.noteFailure(err)
		c.mu.Unlock()
		if !wake.Sleep(c.ctx, c.cfg.Backoff.Interval(attempt)) {
			return
		}
	}
}

func (c *Conn) connectOnce() error {
	opts, err := c.options()
	if err != nil {
		return fmt.Errorf("nats connect: %w: %w", ErrAccess, err)
	}
	o := nats.GetDefaultOptions()
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return fmt.Errorf("nats connect: %w: %w", ErrAccess, err)
		}
	}
	nc, err := o.Connect()
	if err != nil {
		return fmt.Errorf("nats connect: %w", Classify(err))
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
	if closed { // Close has not seen it, and the library would go on dialling for ever
		nc.Close()
		return fmt.Errorf("nats connect: %w", ErrClosed)
	}
	c.connected(nc)
	return nil
}

// noteFailure is told why an attempt to connect failed; c.mu is held.
func (c *Conn) noteFailure(err error) {
	c.lastErr = err
	if errors.Is(err, ErrAccess) {
		c.refusals++
	} else {
		c.refusals = 0
	}
	c.notify()
}

// connected begins a session on the newest socket, if that is still open.
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

// lost ends the session when its socket has ended, or names the reason afterwards.
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
		c.undo(fmt.Errorf("%w: %w", errLost, s.err))
		c.pubs.fail(s.err)
		c.notify()
	case s == nil && sock == nil && err != nil && errors.Is(c.lastErr, errLost):
		c.lastErr = err
		c.notify()
	}
}

// asyncError is told of what the server says without being asked.
func (c *Conn) asyncError(_ *nats.Conn, _ *nats.Subscription, err error) {
	switch {
	case err == nil:
	case errors.Is(err, nats.ErrPermissionViolation):
		c.refused(quoted(err.Error()), fmt.Errorf("%w: %w", ErrAccess, err))
	case errors.Is(Classify(err), ErrAccess):
		c.mu.Lock()
		c.noteFailure(Classify(err))
		c.mu.Unlock()
	}
}

// refused is told of a subject that the server does not let us use.
func (c *Conn) refused(subject string, err error) {
	switch {
	case strings.HasPrefix(subject, c.pubs.prefix): // the answers do not reach us
		c.pubs.fail(err)
	case strings.HasPrefix(subject, "$JS.API."):
		c.mu.Lock()
		c.undo(err)
		c.mu.Unlock()
	default:
		c.pubs.refuse(subject, err)
	}
}

// quoted returns what stands between the first two double quotes.
func quoted(s string) string {
	_, rest, _ := strings.Cut(s, `"`)
	in, _, _ := strings.Cut(rest, `"`)
	return in
}

// dialer connects for the client library, and gives up when the Conn is closed.
type dialer struct{ c *Conn }

// Dial connects to a server.
func (d dialer) Dial(network, address string) (net.Conn, error) {
	nd := net.Dialer{Timeout: d.c.cfg.DialTimeout}
	conn, err := nd.DialContext(d.c.ctx, network, address)
	if err != nil {
		return nil, err
	}
	return d.c.adopt(conn)
}

// InProcessConn connects to the server in this process.
func (d dialer) InProcessConn() (net.Conn, error) {
	conn, err := d.c.cfg.InProcess.InProcessConn()
	if err != nil {
		return nil, err
	}
	return d.c.adopt(conn)
}

func (c *Conn) adopt(conn net.Conn) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		_ = conn.Close() // nothing was said on it
		return nil, ErrClosed
	}
	s := netconn.NewSocket(conn, netconn.SocketConfig{Room: socketRoom, Keep: keepBuffer, OnEnd: func(s *netconn.Socket) { c.lost(s, nil) }})
	c.tasks.Go(s.Run)
	c.socks[s] = struct{}{}
	c.sock = s
	return s, nil
}

// Close sends what was written, closes the connection and ends all that waits. It waits for the server to have seen what was
// written until ctx ends, which is an error, 5 s at most. It is idempotent. Nothing of the Conn runs when it has returned.
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
	if c.live.Load() != nil && c.Flush(ctx) != nil && ctx.Err() != nil { // what is lost with the connection is nobody's fault
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
		_ = s.Close() // frees a handshake that holds the library's lock
	}
	if nc != nil {
		nc.Close()
	}
	c.tasks.Wait()
	c.watchers.Drop()
	return err
}

// Flush waits until the server has read everything that was written on the present connection, until ctx ends, 5 s at most.
// Without a connection it returns [ErrUnavailable] at once.
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

// AtLeast reports whether the server's version is at least major.minor. One that cannot be read counts as old.
func (s *Session) AtLeast(major, minor int) bool {
	var a, b int
	if n, err := fmt.Sscanf(s.Version, "%d.%d", &a, &b); err != nil || n != 2 {
		return false
	}
	return a > major || a == major && b >= minor
}
