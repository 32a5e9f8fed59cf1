package bedrock

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// watch reads ahead from a client while the client waits for a job, so that the server notices when
// the client disconnects. Input is kept for the reader.
type watch struct {
	c      *conn
	ctx    context.Context // of the wait
	cancel context.CancelFunc
	done   chan struct{}
	ahead  int // bytes that had been read before
	buf    []byte
	n      int
	err    error
}

const (
	// watchBuffer is the initial size of the buffer for input during a wait, and maxAhead the maximum.
	// If a client sends more, its disconnection is not noticed.
	watchBuffer = 512
	maxAhead    = 16 << 10
)

// watch starts a goroutine that reads ahead from the client (run), and adds one to the number of
// waiting requests. It does not block. The returned context ends when the wait for a job must end:
// after timeout, when the client disconnects or ends its input, or when the server stops.
//
// Call end of the watch before reading from the connection.
func (c *conn) watch(ctx context.Context, timeout time.Duration) (context.Context, *watch) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	w := &watch{c: c, ctx: ctx, cancel: cancel, done: make(chan struct{}), ahead: len(c.rd.ahead)}
	c.s.stats.waiting.Add(1)
	w.setDeadline()
	if c.s.stopping.Load() {
		cancel()
	}
	go w.run()
	return ctx, w
}

// run reads from the client into w.buf until the wait ends, the server stops, the connection ends,
// or the client vanishes (see vanished). It then ends the context of the wait. When the buffer is
// full, it only waits: a disconnection is then not noticed.
func (w *watch) run() {
	defer close(w.done)
	for w.err == nil && w.room() {
		var n int
		// it returns at the end of the connection or at the read deadline
		n, w.err = w.c.nc.Read(w.buf[w.n:])
		w.n += n
		if n == 0 && w.keepReading() {
			w.err = nil
		}
	}
	if w.err == nil {
		select {
		case <-w.c.s.stopped:
		case <-w.ctx.Done():
		}
	}
	w.cancel()
}

// setDeadline sets the read deadline to the next check of earlier answers with jobs. Without such
// answers it removes the deadline.
func (w *watch) setDeadline() {
	t := time.Time{}
	if len(w.c.handed.answers) > 0 {
		t = time.Now().Add(w.c.tick())
	}
	_ = w.c.nc.SetReadDeadline(t)
}

// keepReading decides, after a read without input, whether run reads again. It returns true only
// after a read deadline, while the wait lasts and the client has not vanished; it then sets the
// next deadline. If the client has vanished, it sets w.err to errVanished.
func (w *watch) keepReading() bool {
	if !errors.Is(w.err, os.ErrDeadlineExceeded) || w.over() {
		return false
	}
	if w.c.vanished() {
		w.err = errVanished
		return false
	}
	w.setDeadline()
	return !w.over() // otherwise this call may have replaced the deadline that ended the wait
}

// over reports whether the wait has ended, or must end because the server stops.
func (w *watch) over() bool { return w.ctx.Err() != nil || w.c.s.stopping.Load() }

// room reports whether the buffer has room for more input. It doubles a full buffer, up to maxAhead
// bytes including input that was read ahead before.
func (w *watch) room() bool {
	if w.n < len(w.buf) {
		return true
	}
	size := min(max(watchBuffer, 2*len(w.buf)), maxAhead-w.ahead)
	if size <= len(w.buf) {
		return false
	}
	w.buf = append(make([]byte, 0, size), w.buf...)[:size]
	return true
}

// end ends the watch and its context, and blocks until its goroutine has returned. The request no
// longer counts as waiting. It passes input to the reader; after input, acknowledged answers are
// forgotten. It sets c.ended if the connection has ended. It leaves a read deadline that has
// passed.
func (w *watch) end() {
	c := w.c
	w.cancel()
	_ = c.nc.SetReadDeadline(past())
	<-w.done
	c.s.stats.waiting.Add(-1)
	if w.n > 0 {
		c.handed.forget()
		c.rd.ahead = append(c.rd.ahead, w.buf[:w.n]...)
	}
	switch {
	case w.err == nil || errors.Is(w.err, os.ErrDeadlineExceeded):
	case errors.Is(w.err, io.EOF):
		c.ended = io.EOF
	default:
		c.ended = w.err
	}
}
