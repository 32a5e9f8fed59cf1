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
)

// dialer wraps the dialing of the client: its connections note whether a command was written, and a dial that fails gives a
// connection whose every use fails with that error. The client would otherwise write each failure to its own log, and after
// some of them answer with an old one for a second.
func (c *Conn) dialer(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		dead := func(err error) (net.Conn, error) {
			return deadConn{addr: address{network, addr}, err: &unusedError{err}}, nil
		}
		if ctx.Value(stay{}) != nil {
			return dead(errLost)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.ctx, cancel)()
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return dead(err)
		}
		s := &socket{Conn: conn, c: c}
		if !c.keep(s) {
			_ = conn.Close()
			return dead(net.ErrClosed)
		}
		if raw, ok := conn.(syscall.Conn); ok {
			return &rawSocket{socket: s, raw: raw}, nil
		}
		return s, nil
	}
}

// newDialer is redis.NewDialer, but for TLS, of which the handshake ends with ctx here.
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

// stay is the key of a value of a ctx with which nothing may be dialed. The client's subscriptions would make a new connection
// as soon as one is lost, in the middle of reading, and hold up all who want to change or end them meanwhile.
type stay struct{}

var errLost = errors.New("the connection was lost")

// keep notes a connection for Close; false: it is too late.
func (c *Conn) keep(s *socket) bool {
	c.socketsMu.Lock()
	defer c.socketsMu.Unlock()
	if c.sockets == nil {
		return false
	}
	c.sockets[s] = struct{}{}
	return true
}

// closeSockets closes all connections, also those that the client does not know yet because it is greeting the server.
func (c *Conn) closeSockets() {
	c.socketsMu.Lock()
	open := c.sockets
	c.sockets = nil
	c.socketsMu.Unlock()
	for s := range open {
		_ = s.Conn.Close()
	}
}

// unusedError is an error on a connection to which no command was written: what it is about was surely not executed.
type unusedError struct{ error }

func (e *unusedError) Unwrap() error { return e.error }

// Timeout passes on whether it is a timeout, which the client asks.
func (e *unusedError) Timeout() bool {
	t, ok := e.error.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

// Temporary is there to make it a net.Error.
func (e *unusedError) Temporary() bool { return false }

// socket is a network connection that counts the writes of commands.
type socket struct {
	net.Conn
	c    *Conn
	used atomic.Bool
}

func (s *socket) Close() error {
	s.c.socketsMu.Lock()
	delete(s.c.sockets, s)
	s.c.socketsMu.Unlock()
	return s.Conn.Close()
}

func (s *socket) Write(p []byte) (int, error) {
	if !harmless(p) {
		s.c.sent.Add(1)
		s.used.Store(true)
	}
	n, err := s.Conn.Write(p)
	return n, s.mark(err)
}

func (s *socket) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	return n, s.mark(err)
}

func (s *socket) mark(err error) error {
	if err == nil || s.used.Load() {
		return err
	}
	return &unusedError{err}
}

// rawSocket lets the client look whether the server has closed an idle connection, before it uses it.
type rawSocket struct {
	*socket
	raw syscall.Conn
}

func (s *rawSocket) SyscallConn() (syscall.RawConn, error) { return s.raw.SyscallConn() }

// harmless reports whether p begins with a command that changes nothing, as the client sends when it greets a server, asks
// where the others are, or looks whether they live.
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

// deadConn is a connection that could not be made.
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

type address struct{ network, addr string }

func (a address) Network() string { return a.network }
func (a address) String() string  { return a.addr }
