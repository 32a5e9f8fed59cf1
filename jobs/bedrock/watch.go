package bedrock

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// watch looks after a client that waits for a job.
type watch struct {
	c      *conn
	ctx    context.Context // of the wait
	cancel context.CancelFunc
	done   chan struct{}
	ahead  int // what had been read before
	buf    []byte
	n      int
	err    error
}

const (
	// watchBuffer is what a client that waits may send at first, and maxAhead how much in all. Who sends more is not seen to go away.
	watchBuffer = 512
	maxAhead    = 16 << 10
)

// watch begins to look after the client, until the watch is ended. The context that it returns ends when the wait should, after the timeout
// at the latest.
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

func (w *watch) run() {
	defer close(w.done)
	for w.err == nil && w.room() {
		var n int
		n, w.err = w.c.nc.Read(w.buf[w.n:]) // it ends with the connection, or with a deadline that is over
		w.n += n
		if n == 0 && w.goesOn() {
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

// setDeadline ends the reading when it is time to look after jobs of earlier answers.
func (w *watch) setDeadline() {
	t := time.Time{}
	if len(w.c.handed.jobs) > 0 {
		t = time.Now().Add(w.c.tick())
	}
	_ = w.c.nc.SetReadDeadline(t)
}

// goesOn looks after jobs of earlier answers, if reading has ended for that. It reports whether to
// read on.
func (w *watch) goesOn() bool {
	if !errors.Is(w.err, os.ErrDeadlineExceeded) || w.over() {
		return false
	}
	if w.c.vanished() {
		w.err = errVanished
		return false
	}
	w.setDeadline()
	return !w.over() // else the deadline that ended it may be gone
}

// over reports whether the wait has ended, or is to end.
func (w *watch) over() bool { return w.ctx.Err() != nil || w.c.s.stopping.Load() }

// room makes the buffer larger if it is full and may be.
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

// end ends the watch, and notes what it saw.
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
