package redisbroker_test

import (
	"context"
	"errors"
	"net"
	"sync"
)

// line is a network that one Broker reaches all nodes through, and that can be cut.
type line struct {
	mu    sync.Mutex
	down  bool
	conns map[*lineConn]struct{}
}

func newLine() *line { return &line{conns: make(map[*lineConn]struct{})} }

type lineConn struct {
	net.Conn
	l *line
}

func (c *lineConn) Close() error {
	c.l.mu.Lock()
	delete(c.l.conns, c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// dial is a redis.UniversalOptions.Dialer.
func (l *line) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	down := l.down
	l.mu.Unlock()
	if down {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("the line is cut")}
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &lineConn{Conn: conn, l: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = struct{}{}
	return c, nil
}

// sever closes all connections.
func (l *line) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Conn.Close()
	}
}

// set cuts the line or mends it.
func (l *line) set(down bool) {
	l.mu.Lock()
	l.down = down
	l.mu.Unlock()
	if down {
		l.sever()
	}
}
