package bedrock

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"runtime/debug"
	"time"
)

const (
	// parting bounds what is still read from a client after its last answer, so that closing does not take the answer away from it.
	partingTime = 500 * time.Millisecond
	partingSize = 256 << 10
	// writeRate is what a client has to accept in a second, beyond WriteTimeout for the whole.
	writeRate = 64 << 10
)

// conn is one connection. Its goroutine runs serve; others set deadlines and close it.
type conn struct {
	s   *Server
	tcp *link // what nc stands on
	nc  net.Conn
	rd  *reader
	req request

	handed handed // in answers after which nothing was read yet
	ended  error  // what the client was seen to have done while it waited: io.EOF, or why the connection broke
}

func newConn(s *Server, tcp net.Conn) *conn {
	below := &link{Conn: tcp}
	c := &conn{s: s, tcp: below, nc: s.encrypted(below), handed: handed{link: below}}
	c.rd = newReader(c, limits{head: s.c.MaxHeader, body: s.c.MaxBody})
	c.rd.enter, c.rd.room = c.enter, s.memory.request
	return c
}

// Read reads for the reader. A client that sends something has not gone away with the answers
// before. Its jobs are forgotten once these are acknowledged. While nothing comes, Read looks
// whether the client has vanished.
func (c *conn) Read(p []byte) (int, error) {
	for {
		n, err := c.nc.Read(p)
		switch {
		case len(c.handed.jobs) == 0:
			return n, err
		case n > 0:
			c.handed.forget()
			return n, err
		case !errors.Is(err, os.ErrDeadlineExceeded) || c.rd.phase != phaseIdle || c.s.stopping.Load():
			return n, err
		case c.vanished():
			return 0, errVanished
		}
		c.enter(phaseIdle)
	}
}

// enter sets the time for what is read next.
func (c *conn) enter(p phase) {
	t := c.s.c.IdleTimeout
	switch {
	case p == phaseHead:
		t = c.s.c.HeaderTimeout
	case p == phaseBody:
		t = c.s.c.BodyTimeout
	case len(c.handed.jobs) > 0:
		t = min(t, c.tick())
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(t))
	if c.s.stopping.Load() {
		_ = c.nc.SetReadDeadline(past())
	}
}

// past is a deadline that is over.
func past() time.Time { return time.Unix(1, 0) }

// serve answers requests, one after the other.
func (c *conn) serve(ctx context.Context) {
	defer c.rd.close()
	if t, ok := c.nc.(*tls.Conn); ok && !c.handshake(ctx, t) {
		return
	}
	for {
		if err := c.rd.next(&c.req); err != nil {
			c.end(ctx, err)
			return
		}
		c.s.stats.requests.Add(1)
		again := c.do(ctx, &c.req)
		c.rd.done(&c.req)
		if !again {
			return
		}
	}
}

func (c *conn) handshake(ctx context.Context, t *tls.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, c.s.c.HeaderTimeout)
	defer cancel()
	if err := t.HandshakeContext(ctx); err != nil {
		c.s.c.Logger.Debug("bedrock: TLS handshake", "client", c.tcp.RemoteAddr().String(), "error", err)
		return false
	}
	return true
}

// end does what is left to do after the last request.
func (c *conn) end(ctx context.Context, err error) {
	var no refusal
	switch {
	case errors.As(err, &no):
	case errors.Is(err, os.ErrDeadlineExceeded) && c.rd.phase != phaseIdle && !c.s.stopping.Load():
		no = errSlow
	case errors.Is(err, io.EOF):
		c.takeBack(ctx, func() bool { return c.lost(ctx) || c.gone() })
		return
	default:
		c.takeBack(ctx, func() bool { return broken(err) || c.lost(ctx) })
		return
	}
	if c.write(&answer{status: string(no), close: true}) == nil {
		_ = c.part()
	}
	c.takeBack(ctx, func() bool { return c.lost(ctx) })
}

// do answers one request, and reports whether there may be another on this connection.
func (c *conn) do(ctx context.Context, req *request) (again bool) {
	call := newCall(c, req)
	defer call.free()
	if call.forget {
		c.forget(ctx, call)
		return false
	}
	a := c.run(ctx, call)
	a.close = a.close || call.last || c.s.stopping.Load()
	if c.ended != nil && !errors.Is(c.ended, io.EOF) { // nobody reads any more; who has only sent all may
		c.handed.add(call.taken)
		c.giveBackHanded(ctx)
		return false
	}
	err := c.write(&a)
	if errors.Is(err, os.ErrDeadlineExceeded) { // earlier answers may be in the client's hands, which may only be slow
		c.handed.forget()
	}
	c.handed.add(call.taken)
	if err != nil {
		c.giveBackHanded(ctx)
		return false
	}
	if a.close {
		_, err := c.tcp.Write(nil) // see gone
		if err == nil {
			err = c.part()
		}
		c.takeBack(ctx, func() bool { return broken(err) || c.lost(ctx) })
	}
	return !a.close
}

// forget answers that a command will be run, closes the connection, and runs it. A job that is asked for in this way would be lost:
// none is taken.
func (c *conn) forget(ctx context.Context, call *call) {
	if c.write(&answer{status: statusQueued, close: true}) == nil {
		c.closeWrite()
	}
	if call.cmd == nil || !call.cmd.takes {
		if a := c.run(ctx, call); a.status != "" {
			c.s.c.Logger.Info("bedrock: a command that was to be forgotten", "command", string(call.req.verb()), "status", a.status)
		}
	}
	_ = c.part()
}

// run runs a command. A panic is answered, and ends the connection; the client is not told of jobs that were taken for it, so they go back.
func (c *conn) run(ctx context.Context, call *call) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			c.s.c.Logger.Error("bedrock: a command panicked", "command", string(call.req.verb()), "panic", p, "stack", string(debug.Stack()))
			c.giveBack(ctx, call.taken)
			call.taken = nil
			a = answer{status: "500 Internal error", close: true}
		}
	}()
	return call.answer(ctx)
}

// write sends an answer.
func (c *conn) write(a *answer) error {
	w := writer{c: c, begun: time.Now()}
	head := buffers.Get().(*[]byte)
	defer free(head)
	*head = appendHead((*head)[:0], a)
	b := a.body
	if b == nil {
		return w.write(*head)
	}
	if len(b.full) == 0 && b.length() <= freeBuffer { // in one packet, if it fits
		*head = append(*head, *b.out...)
		return w.write(*head)
	}
	if err := w.write(*head); err != nil {
		return err
	}
	for i, part := range b.full {
		if err := w.write(part); err != nil {
			return err
		}
		b.written(i)
	}
	return w.write(*b.out)
}

// writer writes one answer. The client must accept some of it within each WriteTimeout. For the
// whole it has WriteTimeout, and a second more for each writeRate bytes.
type writer struct {
	c     *conn
	begun time.Time
	n     int // what was accepted
}

func (w *writer) write(p []byte) error {
	limit := w.c.s.c.WriteTimeout
	for len(p) > 0 {
		at := w.begun.Add(limit + time.Duration(w.n)*time.Second/writeRate)
		if next := time.Now().Add(limit); next.Before(at) {
			at = next
		}
		_ = w.c.nc.SetWriteDeadline(at)
		n, err := w.c.nc.Write(p[:min(len(p), partSize)])
		if err != nil {
			return err
		}
		w.n += n
		p = p[n:]
	}
	return nil
}

// closeWrite tells the client that no more will come.
func (c *conn) closeWrite() bool {
	t, ok := c.nc.(interface{ CloseWrite() error })
	return ok && t.CloseWrite() == nil
}

// part lets the client read its last answer, and returns how its side ended. Closing at once, with input that nobody has read, would have
// the system throw away what the client has not taken yet.
func (c *conn) part() error {
	if !c.closeWrite() {
		return nil
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(partingTime))
	_, err := io.CopyN(io.Discard, c.nc, partingSize)
	return err
}

// broken reports whether a connection that ended with err was broken off by the client, or by its system for it.
func broken(err error) bool {
	return err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed)
}
