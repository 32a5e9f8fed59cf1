package redisbroker_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// line is a network through which one Broker reaches all nodes, and that can be cut.
type line struct {
	mu    sync.Mutex
	down  bool
	conns map[*lineConn]struct{}
	drop  []byte        // the answer to the next command that contains these bytes is lost
	lost  chan struct{} // closed when it was lost
	mute  []byte        // the next answer or message that contains these bytes is lost
}

func newLine() *line { return &line{conns: make(map[*lineConn]struct{})} }

type lineConn struct {
	net.Conn
	l *line

	lost chan struct{} // the next answer must be lost
}

func (c *lineConn) Close() error {
	c.l.mu.Lock()
	delete(c.l.conns, c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

func (c *lineConn) Write(p []byte) (int, error) {
	c.l.mu.Lock()
	if c.l.drop != nil && bytes.Contains(p, c.l.drop) {
		c.lost, c.l.drop = c.l.lost, nil
	}
	c.l.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *lineConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.lost == nil && c.l.mute != nil && bytes.Contains(p[:n], c.l.mute) {
		c.lost, c.l.mute = c.l.lost, nil
	}
	if c.lost != nil {
		close(c.lost)
		c.lost = nil
		_ = c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
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
	if l.down { // it was cut meanwhile
		_ = conn.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("the line is cut")}
	}
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

// set cuts the line or restores it.
func (l *line) set(down bool) {
	l.mu.Lock()
	l.down = down
	l.mu.Unlock()
	if down {
		l.sever()
	}
}

// loseAnswer makes the line lose the answer to the next command that contains text, after the
// server has sent it, and closes that connection. The returned channel is closed when that has
// happened.
func (l *line) loseAnswer(text string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop, l.lost = []byte(text), make(chan struct{})
	return l.lost
}

// loseMessage makes the line lose the next answer or message that contains text, and closes that
// connection. The returned channel is closed when that has happened.
func (l *line) loseMessage(text string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mute, l.lost = []byte(text), make(chan struct{})
	return l.lost
}
