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
	late  *late         // nil: messages come in time
}

// late describes messages of channels that the Broker receives late.
type late struct {
	last, until []byte
	here        chan struct{} // closed when the last message has come
	pass        chan struct{} // closed when the Broker may have them
	handled     chan struct{} // closed when the Broker has handled them
}

func newLine() *line { return &line{conns: make(map[*lineConn]struct{})} }

type lineConn struct {
	net.Conn
	l *line

	lost   chan struct{} // the next answer must be lost
	passed *late         // its next Read shows that the Broker has handled these messages
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
	late := c.l.late
	if late != nil && bytes.Contains(p, late.until) {
		c.l.late = nil
	} else {
		late = nil
	}
	c.l.mu.Unlock()
	if late != nil {
		close(late.pass)
		<-late.handled
	}
	return c.Conn.Write(p)
}

func (c *lineConn) Read(p []byte) (int, error) {
	if c.passed != nil {
		close(c.passed.handled)
		c.passed = nil
	}
	n, err := c.Conn.Read(p)
	c.l.mu.Lock()
	late := c.l.late
	c.l.mu.Unlock()
	if late != nil && bytes.Contains(p[:n], []byte("\r\nmessage\r\n")) {
		for err == nil && !bytes.Contains(p[:n], late.last) {
			var more int
			more, err = c.Conn.Read(p[n:])
			n += more
		}
		close(late.here)
		<-late.pass
		c.passed = late
	}
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

// delayMessages makes the line keep back the next messages of a channel, up to the one that
// contains last. They pass when the Broker sends a command that contains until. The server gets
// that command after the Broker has handled the messages. The returned channel is closed when the
// last message has come.
func (l *line) delayMessages(last, until string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = &late{[]byte(last), []byte(until), make(chan struct{}), make(chan struct{}), make(chan struct{})}
	return l.late.here
}
