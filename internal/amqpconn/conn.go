package amqpconn

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

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/netconn"
	"github.com/swarmiji/swarmiji/internal/reach"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// closeTimeout limits the wait for the server's answer to closing the connection.
const closeTimeout = 5 * time.Second

// Conn is a connection that is made again after each loss. All methods are safe for concurrent use.
type Conn struct {
	name      string
	backoff   task.Backoff
	logger    *slog.Logger
	endpoints []endpoint
	live      atomic.Pointer[Session] // current session, or nil

	mu      sync.Mutex
	started bool
	closed  bool
	gen     uint64
	// consecutive rounds over all URLs in which a server refused access and none accepted
	refusals int
	lastErr  error         // why no session exists
	reason   string        // reason of the server's alarm
	changed  chan struct{} // closed and replaced when any of these fields changes
	watchers netconn.Watchers

	ctx    context.Context // ends with Close; for supervise and its connections
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

// New checks cfg and returns a Conn that connects at its first use. It returns all problems of cfg
// in one error.
//
// The server shows the configured name followed by purpose. The logger receives only a warning
// about TLS without verification, at each connect. Nil: slog.Default().
func New(cfg amqpconnect.Config, purpose string, logger *slog.Logger) (*Conn, error) {
	eps, err := endpoints(cfg)
	if err != nil {
		return nil, err
	}
	if logger == nil {
		logger = slog.Default()
	}
	name := strings.TrimSpace(cmp.Or(cfg.Name, "swarmiji") + " " + purpose)
	c := &Conn{name: name, backoff: cfg.Backoff, logger: logger, endpoints: eps, changed: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// notify wakes waiting calls and passes the current state to the watchers. Call it with c.mu held.
func (c *Conn) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
	c.watchers.Notify(c.state())
}

// Session returns the current session. Without one it waits for the next session; the first such
// call starts the goroutine that connects. It takes c.mu, but does not hold it while it waits.
//
// Returns [ErrUnavailable] with ctx's error when ctx ends first, and [ErrClosed] after Close.
// Returns [ErrAccess] while the server refuses the credentials: at once if it never accepted them,
// otherwise after the second refusal in a row.
func (c *Conn) Session(ctx context.Context) (*Session, error) {
	for {
		if s := c.live.Load(); s != nil && s.Err() == nil {
			return s, nil
		}
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, ErrClosed
		}
		if s := c.live.Load(); s != nil && s.Err() == nil {
			c.mu.Unlock()
			return s, nil
		}
		if !c.started {
			c.started = true
			c.tasks.Go(c.supervise)
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

// unavailable returns ErrUnavailable with ctx's error and the error of the last attempt to connect.
// Without a finished attempt, it names the servers.
func (c *Conn) unavailable(ctx context.Context, last error) error {
	if last == nil {
		addrs := make([]string, len(c.endpoints))
		for i, ep := range c.endpoints {
			addrs[i] = ep.addr
		}
		last = &reach.Error{Server: "RabbitMQ at " + strings.Join(addrs, " or "), Found: "no AMQP answer yet", Next: reach.Scheme, Cause: ctx.Err()}
	}
	return reach.Ended(ErrUnavailable, last, ctx.Err())
}

// waitUnblocked waits until the server does not block publishers on s any more, or s has ended;
// both return nil. Returns ErrBlocked with the server's reason when ctx ends first, and ErrClosed
// after Close. It takes c.mu, but does not hold it while it waits.
func (c *Conn) waitUnblocked(ctx context.Context, s *Session) error {
	for s.Blocked() {
		c.mu.Lock()
		changed, reason := c.changed, c.reason
		c.mu.Unlock()
		if !s.Blocked() {
			return nil
		}
		select {
		case <-changed:
		case <-s.done:
			return nil
		case <-c.ctx.Done():
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("%w (%s): %w", ErrBlocked, reason, ctx.Err())
		}
	}
	return nil
}

// supervise connects and reconnects with backoff until the Conn is closed. When a session ends it
// removes it from c.live and records its error in c.lastErr. It counts refused credentials in a row
// in c.refusals. It notifies waiting calls and watchers of each change. It is the goroutine that
// Session starts. It takes c.mu, but does not hold it while it waits.
func (c *Conn) supervise() {
	attempt := 0
	for c.ctx.Err() == nil {
		s, err := c.connect()
		if err != nil {
			c.mu.Lock()
			c.lastErr = err
			if errors.Is(err, ErrAccess) {
				c.refusals++
			} else {
				c.refusals = 0
			}
			c.notify()
			c.mu.Unlock()
			if !wake.Sleep(c.ctx, c.backoff.Interval(attempt)) {
				return
			}
			attempt++
			continue
		}
		up := time.Now()
		<-s.done
		c.mu.Lock()
		c.live.Store(nil)
		c.lastErr, c.reason = s.err, ""
		c.notify()
		c.mu.Unlock()
		s.watch.Wait()
		// If a server accepts a connection and closes it at once, the backoff grows.
		if time.Since(up) > 5*time.Second {
			attempt = 0
		} else if attempt++; attempt > 1 && !wake.Sleep(c.ctx, c.backoff.Interval(attempt-1)) {
			return
		}
	}
}

// connect tries each URL once, in order. It stores the first session that succeeds in c.live, sets
// c.refusals to 0, clears c.lastErr, notifies waiters and returns the session. If Close was called
// in the meantime, it ends the session at once. Without a success it returns the errors of all URLs
// joined in one, or ErrClosed after Close. It takes c.mu, but not while it connects.
func (c *Conn) connect() (*Session, error) {
	var errs []error
	for _, ep := range c.endpoints {
		conn, sock, err := ep.dial(c.ctx, c.name, c.logger)
		if err != nil {
			if c.ctx.Err() != nil {
				return nil, ErrClosed
			}
			errs = append(errs, err)
			continue
		}
		c.mu.Lock()
		c.gen++
		c.refusals, c.lastErr, c.reason = 0, nil, ""
		s := newSession(c.ctx, c.gen, ep.addr, conn, sock, func(_ bool, reason string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.reason = reason
			c.notify()
		})
		c.live.Store(s)
		c.notify()
		closed := c.closed
		c.mu.Unlock()
		if closed {
			sock.Fail(ErrClosed)
		}
		return s, nil
	}
	return nil, errors.Join(errs...)
}

// Do waits for a session and calls [Session.Do] once. It returns the errors of [Conn.Session] and
// Session.Do.
func (c *Conn) Do(ctx context.Context, fn func(ch *amqp.Channel) error) error {
	s, err := c.Session(ctx)
	if err != nil {
		return err
	}
	return s.Do(ctx, fn)
}

// Supervise calls run with an open channel. When run has returned, it closes the channel, waits
// with full jitter, and calls run with a new one, also if run returned nil. It blocks until ctx
// ends or the Conn is closed. The delay grows while runs are short.
//
// If report is not nil, it is called with the error of each run and of each failure to open a
// channel. It is not called for the end of ctx. Both functions run on the calling goroutine.
func (c *Conn) Supervise(ctx context.Context, run func(ctx context.Context, ch *Channel) error, report func(error)) {
	for attempt := 0; ; attempt++ {
		begin := time.Now()
		err := c.runOnce(ctx, run)
		if ctx.Err() != nil || errors.Is(err, ErrClosed) && c.ctx.Err() != nil {
			return
		}
		if report != nil && err != nil {
			report(err)
		}
		if time.Since(begin) > 5*time.Second {
			attempt = 0
		}
		if !wake.Sleep(ctx, c.backoff.Interval(attempt)) {
			return
		}
	}
}

// runOnce waits for a session, opens a channel, calls run with it and closes it. It returns the
// error of run or of opening, with ErrAccess if the server refused permission.
func (c *Conn) runOnce(ctx context.Context, run func(ctx context.Context, ch *Channel) error) error {
	s, err := c.Session(ctx)
	if err != nil {
		return err
	}
	ch, err := s.Channel(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = ch.Close() }() // the server may have closed it
	return channelError(run(ctx, ch))
}

// Close closes the connection with the AMQP handshake and ends all waiting calls. It waits for the
// server's answer until ctx ends, for at most 5 s. If the server has an alarm and does not read, it
// waits only briefly. Returns ctx's error if ctx ends first. Further calls wait for the same end.
// No goroutine of the Conn runs after Close returned. It takes c.mu, but does not hold it while it
// waits.
func (c *Conn) Close(ctx context.Context) error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		c.notify()
		c.watchers.Close()
	}
	s := c.live.Load()
	c.mu.Unlock()
	c.cancel()
	var err error
	if s != nil {
		ended := make(chan struct{})
		go func() {
			_ = s.conn.Close() // fails only if the connection has ended already
			close(ended)
		}()
		limit := closeTimeout
		if s.Blocked() {
			limit = netconn.Linger // it does not read, so it will not answer
		}
		t := time.NewTimer(limit)
		defer t.Stop()
		select {
		case <-ended:
		case <-t.C:
			s.sock.Fail(ErrClosed)
		case <-ctx.Done():
			s.sock.Fail(ErrClosed)
			err = fmt.Errorf("amqp %s: closing: %w", s.addr, ctx.Err())
		}
		<-ended
	}
	c.tasks.Wait()
	c.watchers.Drop()
	return err
}
