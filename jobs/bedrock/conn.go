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
	// partingTime and partingSize limit the input that is still read from a client after its last
	// answer. Without this, closing the connection could discard the answer.
	partingTime = 500 * time.Millisecond
	partingSize = 256 << 10
	// writeRate is the number of bytes for which a client gets one second, in addition to WriteTimeout
	// for the whole answer.
	writeRate = 64 << 10
)

// conn is one connection. One goroutine runs serve. Other goroutines only set deadlines and close
// it.
type conn struct {
	s   *Server
	tcp *link // the connection below nc
	nc  net.Conn
	rd  *reader
	req request

	out    writer // of the present answer
	handed handed // jobs in answers after which the client has sent nothing
	// the end that was observed while the client waited: io.EOF, or the error of the connection
	ended error
}

// newConn returns a connection over tcp, with TLS if it is configured.
func newConn(s *Server, tcp net.Conn) *conn {
	below := &link{Conn: tcp}
	c := &conn{s: s, tcp: below, nc: s.encrypted(below), handed: handed{link: below}}
	c.out.c, below.more = c, c.out.more
	c.rd = newReader(c, limits{head: s.c.MaxHeader, body: s.c.MaxBody})
	c.rd.enter, c.rd.room = c.enter, s.memory.request
	return c
}

// Read reads from the connection, for the reader. Input from the client shows that it is alive;
// jobs whose answers are acknowledged are then forgotten. Without input Read checks repeatedly
// whether the client has vanished, and then returns errVanished.
func (c *conn) Read(p []byte) (int, error) {
	for {
		n, err := c.nc.Read(p)
		switch {
		case len(c.handed.answers) == 0:
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

// enter sets the read deadline for a phase.
func (c *conn) enter(p phase) {
	t := c.s.c.IdleTimeout
	switch {
	case p == phaseHead:
		t = c.s.c.HeaderTimeout
	case p == phaseBody:
		t = c.s.c.BodyTimeout
	case len(c.handed.answers) > 0:
		t = min(t, c.tick())
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(t))
	if c.s.stopping.Load() {
		_ = c.nc.SetReadDeadline(past())
	}
}

// past returns a deadline that has passed.
func past() time.Time { return time.Unix(1, 0) }

// serve reads and executes requests, one after the other, until the connection ends.
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

// handshake performs the TLS handshake within HeaderTimeout. It logs a failure and reports success.
func (c *conn) handshake(ctx context.Context, t *tls.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, c.s.c.HeaderTimeout)
	defer cancel()
	if err := t.HandshakeContext(ctx); err != nil {
		c.s.c.Logger.Debug("bedrock: a TLS handshake failed", "client", c.tcp.RemoteAddr().String(), "error", err)
		return false
	}
	return true
}

// end handles the end of the input: it answers a refused request with its status, and gives back
// jobs that the client cannot have received.
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
		_ = c.linger()
	}
	c.takeBack(ctx, func() bool { return c.lost(ctx) })
}

// do executes a request and writes its answer. It gives back claimed jobs if the client cannot
// receive the answer. It reports whether the connection may carry another request.
func (c *conn) do(ctx context.Context, req *request) (again bool) {
	call := newCall(c, req)
	defer call.free()
	if call.forget {
		c.forget(ctx, call)
		return false
	}
	a := c.run(ctx, call)
	a.jobs = len(call.taken) > 0
	a.close = a.close || call.last || c.s.stopping.Load()
	// the client no longer reads; after io.EOF it may still read
	if c.ended != nil && !errors.Is(c.ended, io.EOF) {
		c.handed.add(call.taken, time.Now())
		c.giveBackHanded(ctx)
		return false
	}
	err := c.write(&a)
	// the client may have received earlier answers and only be slow
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.handed.forget()
	}
	c.handed.add(call.taken, c.out.begun)
	if err != nil {
		c.giveBackHanded(ctx)
		return false
	}
	if a.close {
		_, err := c.tcp.Write(nil) // see gone
		if err == nil {
			err = c.linger()
		}
		c.takeBack(ctx, func() bool { return broken(err) || c.lost(ctx) })
	}
	return !a.close
}

// forget answers 202, closes the writing side, and then executes a command. Commands that claim
// jobs are not executed, since the jobs would be lost.
func (c *conn) forget(ctx context.Context, call *call) {
	if c.write(&answer{status: statusQueued, close: true}) == nil {
		c.closeWrite()
	}
	if call.cmd == nil || !call.cmd.takes {
		if a := c.run(ctx, call); a.status != "" {
			c.s.c.Logger.Info("bedrock: a command with Connection: forget failed", "command", string(call.req.verb()), "status", a.status)
		}
	}
	_ = c.linger()
}

// run executes a command and returns its answer. A panic is logged and answered with 500, ends the
// connection, and gives back the jobs that the command has claimed.
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

// write sends an answer and releases the memory of its parts. It blocks until the system has
// accepted all bytes.
func (c *conn) write(a *answer) error {
	w := &c.out
	w.begun, w.n, w.jobs = time.Now(), 0, a.jobs
	defer func() { w.jobs = false }()
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

// writer writes one answer with deadlines. The client must accept some bytes within each
// WriteTimeout. The whole answer may take WriteTimeout plus one second for each writeRate bytes. An
// answer with jobs may take mostTimeouts times WriteTimeout while the client's system responds.
type writer struct {
	c     *conn
	begun time.Time
	n     int  // accepted bytes
	jobs  bool // an answer with jobs is being written
}

// more extends the write deadline of an answer with jobs by WriteTimeout, and returns true, while
// the client's system responds. It returns false for other answers.
func (w *writer) more() bool {
	if !w.jobs {
		return false
	}
	limit, h := w.c.s.c.WriteTimeout, &w.c.handed
	h.measure()
	if !h.known || h.silent(w.begun, limit) || time.Since(w.begun) >= mostTimeouts*limit {
		return false
	}
	_ = w.c.tcp.SetWriteDeadline(time.Now().Add(limit))
	return true
}

// write writes p in parts and sets a deadline for each. Returns an error if the client accepts them
// too slowly.
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

// closeWrite closes the writing side of the connection. It reports whether this was possible.
func (c *conn) closeWrite() bool {
	t, ok := c.nc.(interface{ CloseWrite() error })
	return ok && t.CloseWrite() == nil
}

// linger closes the writing side and reads a limited amount of input until the client closes its
// side. Closing at once with unread input would make the system discard data that the client has
// not received. Returns the error with which the client's side ended.
func (c *conn) linger() error {
	if !c.closeWrite() {
		return nil
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(partingTime))
	_, err := io.CopyN(io.Discard, c.nc, partingSize)
	return err
}

// broken reports whether err means that the client, or its system, has broken the connection.
func broken(err error) bool {
	return err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed)
}
