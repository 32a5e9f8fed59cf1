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

// conn is one connection of a client. One goroutine runs serve, and one more reads ahead while a
// command waits for a job (see watch). Other goroutines only set deadlines and close it.
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

// newConn returns a connection over tcp, with TLS if it is configured. It performs no I/O: serve
// makes the handshake.
func newConn(s *Server, tcp net.Conn) *conn {
	below := &link{Conn: tcp}
	c := &conn{s: s, tcp: below, nc: s.encrypted(below), handed: handed{link: below}}
	c.out.c, below.more = c, c.out.more
	c.rd = newReader(c, limits{head: s.c.MaxHeader, body: s.c.MaxBody})
	c.rd.enter, c.rd.room = c.enter, s.memory.request
	return c
}

// Read reads from the connection, for the reader. Input shows that the client is alive: jobs whose
// answers its system has acknowledged are then no longer given back at a disconnection.
//
// While the client is idle and such jobs exist, each read deadline only causes a check. If the
// client's system has vanished, Read returns errVanished. Otherwise it returns the error of the
// connection.
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

// enter sets the read deadline for a phase of the input: IdleTimeout, HeaderTimeout or BodyTimeout
// from now. While jobs of earlier answers may not have arrived, an idle connection has a shorter
// deadline, at which Read checks them. If the server stops, the deadline has passed already.
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

// serve performs the TLS handshake, and reads, counts and executes requests, one after the other,
// until the connection or the server ends. It answers invalid input and gives back jobs that the
// client cannot have received. It releases the reader's memory, but does not close the connection.
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

// handshake performs the TLS handshake within HeaderTimeout and blocks for it. It reports whether
// the handshake succeeded. It logs a failure at level debug.
func (c *conn) handshake(ctx context.Context, t *tls.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, c.s.c.HeaderTimeout)
	defer cancel()
	if err := t.HandshakeContext(ctx); err != nil {
		c.s.c.Logger.Debug("bedrock: a TLS handshake failed", "client", c.tcp.RemoteAddr().String(), "error", err)
		return false
	}
	return true
}

// end handles err, the error that ended the input. Invalid input (a refusal) and a request that
// came too slowly are answered with their status; it then waits until the client closes its side
// (linger). Other ends are not answered: the client has closed or broken the connection, was idle
// too long, or the server stops.
//
// It waits until all answers with jobs are acknowledged. If an answer will never be acknowledged
// (lost), or the connection is broken, it gives the jobs of these answers back.
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

// do executes a request and writes its answer. It blocks. Returns false if the connection ends:
// the client or the server asked for that, the answer could not be written, or the request has
// Connection: forget (see forget).
//
// If the client broke the connection during a wait for a job, it writes no answer. In this case,
// and after a failed write, it resets the connection. It then gives back the jobs of this answer,
// and of earlier ones that may not have arrived.
//
// After the last answer it waits until the client closes its side or a limit passes (linger), and
// until answers with jobs are acknowledged. It gives the jobs back if they will not be.
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

// forget answers 202, closes the writing side, and then executes a command. It blocks until the
// command has ended and the client has closed its side (linger). The client does not see its
// result; a failure is logged, as is an unknown command. A command that claims jobs is not
// executed, since the jobs would be lost; that is not logged.
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

// run executes a command and returns its answer. A panic is logged and answered with 500 and the
// end of the connection; the jobs that the command has claimed are given back.
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

// write sends an answer. It blocks until the system has accepted all bytes or a deadline passes,
// and returns the error of the connection. It releases the memory of each complete part that was
// written. A small answer is sent in one packet, if it fits.
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

// more decides at a write deadline whether to continue. For an answer with jobs, while the client's
// system responds, it extends the deadline by WriteTimeout and returns true. It returns false for
// other answers, after mostTimeouts times WriteTimeout, and if the system cannot report
// acknowledgements.
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

// write writes p in parts of at most partSize and adds the bytes to w.n. It blocks. Returns an
// error if the client accepts them too slowly or the connection ends.
//
// The client must accept each part within WriteTimeout, and all bytes since w.begun at writeRate,
// for which it has WriteTimeout more.
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

// linger closes the writing side and reads, and discards, input until the client closes its side.
// It stops after partingTime or partingSize bytes. Closing at once with unread input would make the
// system discard data that the client has not received.
//
// Returns the error with which the client's side ended: io.EOF after a normal close. Returns nil if
// the writing side could not be closed.
func (c *conn) linger() error {
	if !c.closeWrite() {
		return nil
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(partingTime))
	_, err := io.CopyN(io.Discard, c.nc, partingSize)
	return err
}

// broken reports whether err means that the client, or its system, has broken the connection. nil,
// the end of the input, a deadline and a close by this process do not mean that.
func broken(err error) bool {
	return err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed)
}
