package amqpconn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Session is one connection from its handshake to its end. All methods may be called from any goroutine.
type Session struct {
	gen     uint64
	addr    string
	conn    *amqp.Connection
	sock    *socket
	blocked atomic.Bool
	done    chan struct{}
	err     error // set before done is closed
	watch   sync.WaitGroup
}

// errEarlyEnd is the end of a connection or channel that was over before anybody could listen for its reason.
var errEarlyEnd = errors.New("ended right after it was opened")

// newSession starts to watch a fresh connection. changed is called when the server blocks or unblocks it; owner ends before
// its Conn closes it.
func newSession(owner context.Context, gen uint64, addr string, c *amqp.Connection, sock *socket, changed func(blocked bool, reason string)) *Session {
	s := &Session{gen: gen, addr: addr, conn: c, sock: sock, done: make(chan struct{})}
	// Both channels are closed by the library when the connection has ended.
	closed := c.NotifyClose(make(chan *amqp.Error, 1))
	blocked := c.NotifyBlocked(make(chan amqp.Blocking, 16))
	s.watch.Go(func() {
		for b := range blocked {
			s.blocked.Store(b.Active)
			changed(b.Active, b.Reason)
		}
	})
	s.watch.Go(func() {
		e, ok := <-closed
		switch {
		case ok && e.Server:
			s.err = fmt.Errorf("amqp %s: closed by the server: %w", addr, e)
		case ok:
			s.err = fmt.Errorf("amqp %s: connection lost: %w", addr, s.cause(e))
		case owner.Err() != nil:
			s.err = fmt.Errorf("amqp %s: %w", addr, ErrClosed)
		default: // lost before NotifyClose: the library says nothing then
			s.err = fmt.Errorf("amqp %s: connection lost: %w", addr, s.cause(errEarlyEnd))
		}
		// The library writes nothing more; what it reads no longer matters.
		_ = s.sock.Close()
		<-s.sock.Flushed()
		close(s.done)
	})
	return s
}

// cause prefers the socket's own error to the library's text about it.
func (s *Session) cause(e error) error {
	if err := s.sock.Err(); err != nil {
		return err
	}
	return e
}

// Generation numbers the sessions of a Conn from 1.
func (s *Session) Generation() uint64 { return s.gen }

// MaxChannels is how many channels the connection may have at a time.
func (s *Session) MaxChannels() int { return int(s.conn.Config.ChannelMax) }

// Done is closed when the connection has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err says why the connection ended; nil while it has not.
func (s *Session) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Ended reports whether the connection has ended, perhaps a moment before Done is closed. A reset may be known from writing
// before it is from reading.
func (s *Session) Ended() bool { return s.conn.IsClosed() || s.sock.Failed() || s.Err() != nil }

// reason waits for the reason of a connection that has ended.
func (s *Session) reason() error {
	<-s.done
	return s.err
}

// Blocked reports whether the server has told that it takes no messages on this connection just now.
func (s *Session) Blocked() bool { return s.blocked.Load() }

// Channel is an open channel of a session with its end. The embedded channel's own waits are not bounded by a ctx, but end
// with the session.
type Channel struct {
	*amqp.Channel
	sess   *Session
	closed atomic.Bool // by us
	done   chan struct{}
	err    error // set before done is closed
}

// Session returns the connection that the channel belongs to.
func (c *Channel) Session() *Session { return c.sess }

// Close closes the channel and waits for the server's answer. On one that has ended it does nothing.
func (c *Channel) Close() error {
	c.closed.Store(true)
	return c.Channel.Close()
}

// Done is closed when the channel has ended, by either side or with its connection.
func (c *Channel) Done() <-chan struct{} { return c.done }

// Err says why the channel ended: [ErrClosed] after its Close, else the server's reason; nil while it is open.
func (c *Channel) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Channel opens a channel. The caller closes it. If ctx ends first the error wraps [ErrUnavailable] and the ctx's error.
func (s *Session) Channel(ctx context.Context) (*Channel, error) {
	type opened struct {
		ch  *Channel
		err error
	}
	res := make(chan opened, 1)
	go func() {
		ch, err := s.open()
		if err == nil && ctx.Err() != nil {
			_ = ch.Close() // nobody waits for it any more
			err = ctx.Err()
		}
		res <- opened{ch, err}
	}()
	select {
	case r := <-res:
		return r.ch, r.err
	case <-ctx.Done():
		go func() {
			if r := <-res; r.ch != nil {
				_ = r.ch.Close() // opened between the two checks
			}
		}()
		return nil, fmt.Errorf("amqp %s: %w: opening a channel: %w", s.addr, ErrUnavailable, ctx.Err())
	}
}

func (s *Session) open() (*Channel, error) {
	ch, err := s.conn.Channel()
	if err != nil {
		if s.Ended() {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, s.reason())
		}
		return nil, fmt.Errorf("amqp %s: opening a channel: %w", s.addr, err)
	}
	c := &Channel{Channel: ch, sess: s, done: make(chan struct{})}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	go func() {
		e, ok := <-closed
		switch {
		case ok:
			c.err = channelError(e)
		case c.closed.Load():
			c.err = ErrClosed
		case s.Ended():
			c.err = s.reason()
		default:
			c.err = fmt.Errorf("amqp %s: channel: %w", s.addr, errEarlyEnd)
		}
		close(c.done)
	}()
	return c, nil
}

// Do runs fn with a channel of its own, which it closes afterwards, so that an error of the server (it closes the channel
// of a failed declaration) hurts nobody else. If the connection ends before fn has returned the error wraps
// [ErrIndeterminate]. If ctx does, it wraps [ErrUnavailable] and the ctx's error, and fn ends by itself, at the latest with
// the session.
func (s *Session) Do(ctx context.Context, fn func(ch *amqp.Channel) error) error {
	ch, err := s.Channel(ctx)
	if err != nil {
		return err
	}
	res := make(chan error, 1)
	go func() {
		err := channelError(fn(ch.Channel))
		_ = ch.Close() // on a channel that the server has closed it does nothing
		res <- err
	}()
	select {
	case err := <-res:
		if err != nil && s.Ended() && !IsChannelError(err) {
			return fmt.Errorf("%w: %w", ErrIndeterminate, s.reason())
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("amqp %s: %w: %w", s.addr, ErrUnavailable, ctx.Err())
	}
}
