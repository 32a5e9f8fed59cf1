package redisconn

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/reach"
)

// dialer wraps the dial function of the client. Its connections record whether a command was
// written. If dialing fails it returns a connection whose every use fails with that error. With a
// plain error the client would log each failure itself, and after several failures return an old
// error for a second.
//
// A dial ends when ctx ends or the Conn is closed. With a ctx that holds noDial it does not dial,
// and fails with errLost.
func (c *Conn) dialer(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		dead := func(err error) (net.Conn, error) {
			return deadConn{addr: address{network, addr}, err: &unusedError{err}}, nil
		}
		if ctx.Value(noDial{}) != nil {
			return dead(errLost)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.ctx, cancel)()
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return dead(&reach.Error{Server: "Redis at " + addr, Found: reach.Reason(err), Next: reach.Start, Cause: err})
		}
		s := &socket{Conn: conn, c: c}
		if !c.track(s) {
			_ = conn.Close()
			return dead(net.ErrClosed)
		}
		if raw, ok := conn.(syscall.Conn); ok {
			return &rawSocket{socket: s, raw: raw}, nil
		}
		return s, nil
	}
}

// newDialer returns a dial function like redis.NewDialer, but its TLS handshake ends when ctx ends.
// A dial takes at most o.DialTimeout. The function waits for the server and returns the errors of
// net and tls unchanged.
func newDialer(o *redis.UniversalOptions) func(ctx context.Context, network, addr string) (net.Conn, error) {
	d := &net.Dialer{
		Timeout:         o.DialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	if o.TLSConfig == nil {
		return d.DialContext
	}
	return (&tls.Dialer{NetDialer: d, Config: o.TLSConfig}).DialContext
}

// noDial is the context key that forbids dialing. Without it a subscription of the client would
// dial again in the middle of a read after a lost connection. Callers that change or end the
// subscription would wait for that.
type noDial struct{}

var errLost = errors.New("the connection was lost")

// track registers a connection, so that Close closes it. It returns false after Close. It takes
// c.socketsMu.
func (c *Conn) track(s *socket) bool {
	c.socketsMu.Lock()
	defer c.socketsMu.Unlock()
	if c.sockets == nil {
		return false
	}
	c.sockets[s] = struct{}{}
	return true
}

// closeSockets closes all connections, also those that the client does not know yet because their
// handshake is running. It takes c.socketsMu.
func (c *Conn) closeSockets() {
	c.socketsMu.Lock()
	open := c.sockets
	c.sockets = nil
	c.socketsMu.Unlock()
	for s := range open {
		_ = s.Conn.Close()
	}
}

// unusedError is an error of a connection to which no command was written, so that the command was
// certainly not executed.
type unusedError struct{ error }

// Unwrap returns the wrapped error.
func (e *unusedError) Unwrap() error { return e.error }

// Timeout reports whether the wrapped error is a timeout. The client asks for it.
func (e *unusedError) Timeout() bool {
	t, ok := e.error.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

// Temporary completes the interface net.Error. It returns false.
func (e *unusedError) Temporary() bool { return false }

// socket is a network connection that counts the writes of commands in its Conn.
type socket struct {
	net.Conn
	c    *Conn
	used atomic.Bool
}

// Close closes the connection and removes it from those that closeSockets closes. It takes
// c.socketsMu.
func (s *socket) Close() error {
	s.c.socketsMu.Lock()
	delete(s.c.sockets, s)
	s.c.socketsMu.Unlock()
	return s.Conn.Close()
}

// Write writes p. Unless p begins with a harmless command, it adds one to c.sent and marks the
// connection as used. The error is that of mark.
func (s *socket) Write(p []byte) (int, error) {
	if !harmless(p) {
		s.c.sent.Add(1)
		s.used.Store(true)
	}
	n, err := s.Conn.Write(p)
	return n, s.mark(err)
}

// Read reads into p. The error is that of mark.
func (s *socket) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	return n, s.mark(err)
}

// mark wraps an error of a connection to which no command was written in unusedError.
func (s *socket) mark(err error) error {
	if err == nil || s.used.Load() {
		return err
	}
	return &unusedError{err}
}

// rawSocket gives the client access to the system socket, so that it can detect a closed idle
// connection before it uses it.
type rawSocket struct {
	*socket
	raw syscall.Conn
}

// SyscallConn returns the system socket of the connection.
func (s *rawSocket) SyscallConn() (syscall.RawConn, error) { return s.raw.SyscallConn() }

// harmless reports whether p begins with a command that changes no data. The client sends such
// commands in the handshake, to find other servers, and to check connections. It returns false for
// any other text.
func harmless(p []byte) bool {
	if len(p) == 0 || p[0] != '*' {
		return false
	}
	_, rest, ok := bytes.Cut(p, []byte("\r\n$"))
	if !ok {
		return false
	}
	size, rest, ok := bytes.Cut(rest, []byte("\r\n"))
	if !ok {
		return false
	}
	n, err := strconv.Atoi(string(size))
	if err != nil || n < 0 || n > len(rest) {
		return false
	}
	switch string(bytes.ToLower(rest[:n])) {
	case "hello", "auth", "client", "select", "readonly", "ping", "cluster", "command", "sentinel", "subscribe", "unsubscribe",
		"psubscribe", "punsubscribe", "info", "config":
		return true
	}
	return false
}

// deadConn is the net.Conn that a failed dial returns: every Read and Write returns err, and the
// other methods do nothing.
type deadConn struct {
	addr address
	err  error
}

func (d deadConn) Read([]byte) (int, error)         { return 0, d.err }
func (d deadConn) Write([]byte) (int, error)        { return 0, d.err }
func (d deadConn) Close() error                     { return nil }
func (d deadConn) LocalAddr() net.Addr              { return d.addr }
func (d deadConn) RemoteAddr() net.Addr             { return d.addr }
func (d deadConn) SetDeadline(time.Time) error      { return nil }
func (d deadConn) SetReadDeadline(time.Time) error  { return nil }
func (d deadConn) SetWriteDeadline(time.Time) error { return nil }

// address is the address of the server that a deadConn did not reach.
type address struct{ network, addr string }

func (a address) Network() string { return a.network }
func (a address) String() string  { return a.addr }
