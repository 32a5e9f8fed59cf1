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

	"github.com/swarmiji/swarmiji/jobs"
)

const (
	// handedTime is how long after its answer a client that breaks the connection counts as one that has not read it.
	handedTime = 10 * time.Second
	// giveBackTime is how long the store may take to have jobs back.
	giveBackTime = 10 * time.Second
	// parting bounds what is still read from a client after its last answer, so that closing does not take the answer away from it.
	partingTime = 500 * time.Millisecond
	partingSize = 256 << 10
	// writeRate is what a client has to accept in a second, beyond WriteTimeout.
	writeRate = 64 << 10
)

// conn is one connection. Its goroutine runs serve; others set deadlines and close it.
type conn struct {
	s   *Server
	tcp net.Conn // what nc stands on
	nc  net.Conn
	rd  *reader
	req request

	handed []jobs.Handout // in answers after which nothing was read yet
	ended  error          // what the client was seen to have done while it waited: io.EOF, or why the connection broke
}

func newConn(s *Server, tcp net.Conn) *conn {
	c := &conn{s: s, tcp: tcp, nc: s.encrypted(tcp)}
	c.rd = newReader(c, limits{head: s.c.MaxHeader, body: s.c.MaxBody})
	c.rd.enter, c.rd.room = c.enter, s.room
	return c
}

// Read reads for the reader. Whoever sends something after an answer has not gone away with it, nor has who breaks the connection much
// later; the jobs that it was given are then not held any longer.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.nc.Read(p)
	if n == 0 && len(c.handed) > 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.rd.phase == phaseIdle {
		c.handed = nil
		c.enter(phaseIdle)
		n, err = c.nc.Read(p)
	}
	if n > 0 {
		c.handed = nil
	}
	return n, err
}

// enter sets the time for what is read next.
func (c *conn) enter(p phase) {
	t := c.s.c.IdleTimeout
	switch {
	case p == phaseHead:
		t = c.s.c.HeaderTimeout
	case p == phaseBody:
		t = c.s.c.BodyTimeout
	case len(c.handed) > 0:
		t = min(t, handedTime)
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
		c.takeBack(ctx, c.gone)
		return
	default:
		c.takeBack(ctx, func() bool { return broken(err) })
		return
	}
	if c.write(&answer{status: string(no), close: true}) == nil {
		_ = c.part()
	}
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
		c.giveBack(ctx, append(c.handed, call.taken...))
		return false
	}
	switch err := c.write(&a); {
	case errors.Is(err, os.ErrDeadlineExceeded): // earlier answers are in the client's hands, which may only be slow
		c.giveBack(ctx, call.taken)
		return false
	case err != nil:
		c.giveBack(ctx, append(c.handed, call.taken...))
		return false
	}
	if len(call.taken) > 0 {
		c.handed = append(c.handed, call.taken...)
	}
	if a.close {
		_, err := c.tcp.Write(nil) // see gone
		if err == nil {
			err = c.part()
		}
		c.takeBack(ctx, func() bool { return broken(err) })
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
	out := buffers.Get().(*[]byte)
	*out = appendAnswer((*out)[:0], a)
	_ = c.nc.SetWriteDeadline(time.Now().Add(c.s.c.WriteTimeout + time.Duration(len(*out))*time.Second/writeRate))
	_, err := c.nc.Write(*out)
	free(out)
	return err
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

// takeBack gives back the jobs of the last answers if the client, as gone finds out, cannot have read them.
func (c *conn) takeBack(ctx context.Context, gone func() bool) {
	if len(c.handed) > 0 && gone() {
		c.giveBack(ctx, c.handed)
	}
	c.handed = nil
}

// broken reports whether a connection that ended with err was broken off by the client, or by its system for it.
func broken(err error) bool {
	return err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed)
}

// gone finds out whether the other end, which sends nothing any more, is closed altogether: its system then has refused the answer,
// and this one says so when something is written, if only nothing. That takes a trip.
func (c *conn) gone() bool {
	for _, pause := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond} {
		time.Sleep(pause)
		if _, err := c.tcp.Write(nil); err != nil {
			return true
		}
	}
	return false
}

// giveBack has jobs be as if they had not been handed out.
func (c *conn) giveBack(ctx context.Context, handed []jobs.Handout) {
	if len(handed) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTime)
	defer cancel()
	for _, h := range handed {
		switch err := c.s.c.Service.GiveBack(ctx, h); {
		case err == nil:
			c.s.stats.givenBack.Add(1)
		case !errors.Is(err, jobs.ErrStale) && !errors.Is(err, jobs.ErrNotFound): // it has been ended by somebody who knew its id
			c.s.c.Logger.Error("bedrock: giving back a job whose client is gone", "job", h.ID, "name", h.Name, "error", err)
		}
	}
}
