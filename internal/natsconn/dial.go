package natsconn

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/internal/netconn"
	"github.com/swarmiji/swarmiji/internal/reach"
)

// dialer makes connections for the client library. A dial ends when the Conn is closed.
type dialer struct{ c *Conn }

// Dial connects to a server and returns the connection as a netconn.Socket of the Conn. It waits
// for at most Config.DialTimeout, or until Close. It stores the error of the attempt in c.dialErr.
// It takes c.mu, but not while it waits. Returns ErrClosed after Close.
func (d dialer) Dial(network, address string) (net.Conn, error) {
	nd := net.Dialer{Timeout: d.c.cfg.DialTimeout}
	conn, err := nd.DialContext(d.c.ctx, network, address)
	d.c.mu.Lock()
	d.c.dialErr = err
	d.c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return d.c.adopt(conn)
}

// InProcessConn connects to the server in this process and returns the connection as a
// netconn.Socket of the Conn. Returns ErrClosed after Close. It takes c.mu, see adopt.
func (d dialer) InProcessConn() (net.Conn, error) {
	conn, err := d.c.cfg.InProcess.InProcessConn()
	if err != nil {
		return nil, err
	}
	return d.c.adopt(conn)
}

// adopt wraps conn in a netconn.Socket, starts its goroutine, and makes it the newest socket,
// c.sock. The end of the socket ends its session, see lost. After Close it closes conn and returns
// ErrClosed. It takes c.mu.
func (c *Conn) adopt(conn net.Conn) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		_ = conn.Close() // no data was sent on it
		return nil, ErrClosed
	}
	s := netconn.NewSocket(conn, netconn.SocketConfig{Room: socketRoom, Keep: keepBuffer, OnEnd: func(s *netconn.Socket) { c.lost(s, nil) }})
	c.tasks.Go(s.Run)
	c.socks[s] = struct{}{}
	c.sock = s
	return s, nil
}

// unusable returns the error of a connection that was not made: a [reach.Error] that wraps class,
// which may be nil, and cause. Its text names the servers, the problem found and the next step for
// a person. It takes c.mu.
func (c *Conn) unusable(class, cause error) error {
	e := &reach.Error{Server: c.servers(), Class: class, Cause: cause}
	c.mu.Lock()
	dialErr := c.dialErr
	c.mu.Unlock()
	switch {
	case errors.Is(class, ErrAccess):
		e.Found, e.Next = strings.TrimPrefix(cause.Error(), "nats: "), "correct user and password, token or credentials file of the URL"
	case dialErr != nil:
		e.Found, e.Next = reach.Reason(dialErr), reach.Start
	case errors.Is(cause, nats.ErrNoServers), errors.Is(cause, nats.ErrTimeout):
		e.Found, e.Next = "a server accepts connections, but does not answer as NATS does", reach.Scheme
	default:
		e.Found, e.Next = reach.Reason(cause), reach.Scheme
	}
	return e
}

// unavailable returns ErrUnavailable with ctx's cause and the error of the last attempt to connect.
// Without a finished attempt, it names the servers.
func (c *Conn) unavailable(ctx context.Context, last error) error {
	if last == nil {
		last = &reach.Error{Server: c.servers(), Found: "no NATS answer yet", Next: reach.Scheme, Cause: context.Cause(ctx)}
	}
	return reach.Ended(ErrUnavailable, last, context.Cause(ctx))
}

// servers names the configured servers, without user and password.
func (c *Conn) servers() string {
	if c.cfg.InProcess != nil {
		return "the NATS server in this process"
	}
	var hosts []string
	for _, raw := range c.cfg.URLs {
		if u, err := url.Parse(raw); err == nil {
			hosts = append(hosts, u.Host)
		}
	}
	return "NATS at " + strings.Join(hosts, " or ")
}
