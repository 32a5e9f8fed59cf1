package amqpconn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Session is one connection from its handshake to its end. All methods are safe for concurrent use.
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

// errEarlyEnd is the reason of a connection or channel that ended before NotifyClose was called.
var errEarlyEnd = errors.New("ended right after it was opened")

// newSession returns the session of a new connection and starts two goroutines that watch it. When
// the connection ends, one sets s.err, closes the socket and then s.done. The other calls changed
// when the server blocks or unblocks the connection. owner ends before the Conn closes the
// connection.
func newSession(owner context.Context, gen uint64, addr string, c *amqp.Connection, sock *socket, changed func(blocked bool, reason string)) *Session {
	s := &Session{gen: gen, addr: addr, conn: c, sock: sock, done: make(chan struct{})}
	// The library closes both channels when the connection has ended.
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
		default: // lost before NotifyClose: the library gives no reason
			s.err = fmt.Errorf("amqp %s: connection lost: %w", addr, s.cause(errEarlyEnd))
		}
		// The library writes no more data, and data that it still reads is not needed.
		_ = s.sock.Close()
		<-s.sock.Flushed()
		close(s.done)
	})
	return s
}

// cause returns the socket's own error if there is one, and otherwise e, the library's text about
// it.
func (s *Session) cause(e error) error {
	if err := s.sock.Err(); err != nil {
		return err
	}
	return e
}

// Generation returns the number of the session in its Conn, from 1.
func (s *Session) Generation() uint64 { return s.gen }

// MaxChannels returns the number of channels that the connection may have at the same time.
func (s *Session) MaxChannels() int { return int(s.conn.Config.ChannelMax) }

// Done returns a channel that is closed when the connection has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns the reason why the connection ended, or nil if it has not.
func (s *Session) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Ended reports whether the connection has ended. It may return true shortly before Done is closed,
// because a write may detect a reset before the read does.
func (s *Session) Ended() bool { return s.conn.IsClosed() || s.sock.Failed() || s.Err() != nil }

// reason waits for the end of the connection and returns its reason.
func (s *Session) reason() error {
	<-s.done
	return s.err
}

// Blocked reports whether the server has announced that it accepts no messages on this connection
// now.
func (s *Session) Blocked() bool { return s.blocked.Load() }

// Channel is an open channel of a session. Methods of the embedded channel have no ctx, but return
// when the session ends.
type Channel struct {
	*amqp.Channel
	sess   *Session
	closed atomic.Bool // Close was called
	done   chan struct{}
	err    error // set before done is closed
}

// Session returns the connection to which the channel belongs.
func (c *Channel) Session() *Session { return c.sess }

// Close closes the channel and waits for the server's answer. It does nothing if the channel has
// ended. Err returns ErrClosed afterwards, unless the server ended the channel.
func (c *Channel) Close() error {
	c.closed.Store(true)
	return c.Channel.Close()
}

// Done returns a channel that is closed when this channel has ended, for any reason.
func (c *Channel) Done() <-chan struct{} { return c.done }

// Err returns the reason why the channel ended: [ErrClosed] after its Close, otherwise the server's
// reason. It returns nil while the channel is open.
func (c *Channel) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Channel opens a channel and waits for the server. The caller must close it. Returns
// [ErrUnavailable] with ctx's error when ctx ends first, or with the session's error when the
// session ends. Other errors of the server are returned with its address. A channel that opens too
// late is closed.
func (s *Session) Channel(ctx context.Context) (*Channel, error) {
	type opened struct {
		ch  *Channel
		err error
	}
	res := make(chan opened, 1)
	go func() {
		ch, err := s.open()
		if err == nil && ctx.Err() != nil {
			_ = ch.Close() // no caller waits for it any more
			ch, err = nil, s.notOpened(ctx)
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
		return nil, s.notOpened(ctx)
	}
}

// notOpened returns the error of a channel that did not open before ctx ended.
func (s *Session) notOpened(ctx context.Context) error {
	return fmt.Errorf("amqp %s: %w: opening a channel: %w", s.addr, ErrUnavailable, ctx.Err())
}

// open opens a channel and starts a goroutine that sets its err and closes its done when it ends.
// It blocks until the server answers or the session ends. Returns ErrUnavailable if the session has
// ended, and the server's error.
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

// Do runs fn with a temporary channel on another goroutine, waits for it, closes the channel and
// returns fn's error. A server error, such as a refused declaration, closes only that channel. The
// error wraps ErrAccess if the server refused permission. Returns [ErrIndeterminate] if fn fails
// and the connection has ended, unless the server's answer to fn is known. If no channel can be
// opened, it does not call fn and returns the error of [Session.Channel].
//
// When ctx ends Do returns [ErrUnavailable] with ctx's error at once. fn then continues, at the
// latest until the session ends.
func (s *Session) Do(ctx context.Context, fn func(ch *amqp.Channel) error) error {
	ch, err := s.Channel(ctx)
	if err != nil {
		return err
	}
	res := make(chan error, 1)
	go func() {
		err := channelError(fn(ch.Channel))
		_ = ch.Close() // does nothing if the server has closed the channel
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
