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
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// closeTimeout bounds the wait for the server's goodbye.
const closeTimeout = 5 * time.Second

// Conn is a connection that mends itself. All methods may be called from any goroutine.
type Conn struct {
	name      string
	backoff   task.Backoff
	logger    *slog.Logger
	endpoints []endpoint
	live      atomic.Pointer[Session] // the session while there is one

	mu       sync.Mutex
	started  bool
	closed   bool
	gen      uint64
	refusals int           // rounds in a row in which the server refused us and no URL worked
	lastErr  error         // why there is no session
	reason   string        // of the server's alarm
	changed  chan struct{} // closed and replaced when any of these changes
	watchers netconn.Watchers

	ctx    context.Context // ends with Close; of the supervisor and what it starts
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

// New checks cfg and returns a Conn that connects when it is first used. All problems of cfg are reported together.
//
// The server shows the purpose after the configured name. The logger is told of TLS without verification at each connect, and
// of nothing else; nil: slog.Default().
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

// notify tells of a change; c.mu is held.
func (c *Conn) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
	c.watchers.Tell(c.state())
}

// Session returns the connection, and waits for it if there is none. The error wraps [ErrUnavailable] and the ctx's error
// when ctx ends first, [ErrAccess] at once while the server refuses the credentials, or [ErrClosed].
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

func unavailable(ctx context.Context, last error) error {
	if last == nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
	return fmt.Errorf("%w: %w, the last attempt: %w", ErrUnavailable, ctx.Err(), last)
}

// waitUnblocked waits while the server takes no messages on s.
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

// supervise keeps a session until the Conn is closed.
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
		// A server that accepts us and drops us at once is no reason to hurry.
		if time.Since(up) > 5*time.Second {
			attempt = 0
		} else if attempt++; attempt > 1 && !wake.Sleep(c.ctx, c.backoff.Interval(attempt-1)) {
			return
		}
	}
}

// connect tries each URL once. If one of them refused us that is the error, else the errors of all.
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

// Do is [Session.Do] on the present session; it waits for one.
func (c *Conn) Do(ctx context.Context, fn func(ch *amqp.Channel) error) error {
	s, err := c.Session(ctx)
	if err != nil {
		return err
	}
	return s.Do(ctx, fn)
}

// Supervise calls run with an open channel, and again with a new one whenever run has returned, until ctx ends or the Conn
// is closed. After run has returned its channel is closed. report, if not nil, is told why each run ended and why no
// channel could be opened; it is not told of the end of ctx. Between two runs there is a pause, full-jitter, that grows
// while runs are short.
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

// Close closes the connection in good order and ends all that waits. It waits for the server's answer until ctx ends, 5 s at
// most, and hardly at all for a server that does not read since it has an alarm. It is
// idempotent. Nothing of the Conn runs when it has returned.
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
			_ = s.conn.Close() // its only failure is that the connection has ended already
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
