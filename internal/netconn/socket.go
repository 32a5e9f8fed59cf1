// Package netconn is the common base of connections of several technologies: a socket whose writes
// never block, and watchers of a connection's state.
package netconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// Linger limits the time for which a connection stays open after [Socket.Close] to send the
// remaining data.
const Linger = 250 * time.Millisecond

// ErrStalled ends a connection whose server has read nothing for [SocketConfig].Stall.
var ErrStalled = errors.New("the server has stopped reading")

// ErrNotWritten is wrapped in each error of [Socket.Write]. Client libraries return it unchanged,
// and their own errors do not hold it.
var ErrNotWritten = errors.New("not written")

// SocketConfig holds the settings of [NewSocket].
type SocketConfig struct {
	// Room is the number of bytes that may wait to be written before [Socket.WaitRoom] blocks.
	Room int
	// Keep is the largest write buffer that is reused.
	Keep int
	// Stall is the time after which a server that reads nothing counts as failed while a call waits in
	// WaitRoom. 0: no limit.
	Stall time.Duration
	// OnEnd is called once, when the connection is closed or has failed. Nil: no call.
	OnEnd func(*Socket)
}

// Socket is a net.Conn whose Write never blocks. Write appends to a buffer, and [Socket.Run] writes
// all data that was appended since its last write. Many small frames therefore share one system
// call without a timer. A client library that writes with its lock held does not wait for a server
// that does not read. Publishers limit the buffer with WaitRoom, which has a ctx. Make one with
// [NewSocket]. Safe for concurrent use.
type Socket struct {
	net.Conn
	cfg SocketConfig

	mu      sync.Mutex
	pending []byte
	queued  int           // bytes in pending and in the current write
	room    chan struct{} // non-nil while a call waits; closed when fewer than Room bytes are queued
	err     error         // why writing has stopped; nil: it has not
	closing bool
	taken   atomic.Int64

	wake    wake.Signal
	flushed chan struct{} // closed when Run has returned
	stopped chan struct{} // closed when err is set
	end     sync.Once
}

// NewSocket returns a Socket over c. Call Run on a goroutine.
func NewSocket(c net.Conn, cfg SocketConfig) *Socket {
	return &Socket{Conn: c, cfg: cfg, wake: wake.New(), flushed: make(chan struct{}), stopped: make(chan struct{})}
}

// Write appends a copy of p to the buffer and returns at once. After Close, or after writing has
// stopped, it appends nothing and returns [ErrNotWritten] with the reason. It takes s.mu.
func (s *Socket) Write(p []byte) (int, error) {
	s.mu.Lock()
	if s.err != nil || s.closing {
		err := s.err
		s.mu.Unlock()
		if err == nil {
			err = net.ErrClosed
		}
		return 0, fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	s.pending = append(s.pending, p...)
	s.queued += len(p)
	s.taken.Add(int64(len(p)))
	s.mu.Unlock()
	s.wake.Notify()
	return len(p), nil
}

// Taken returns the number of bytes that Write accepted. Each of them may have been sent.
func (s *Socket) Taken() int64 { return s.taken.Load() }

// Run writes the buffered data until the connection fails or Fail is called, or until all is
// written after Close. It then closes the connection and calls OnEnd. It blocks; call it once on
// its own goroutine. It takes s.mu, but does not hold it while it writes.
func (s *Socket) Run() {
	defer close(s.flushed)
	var spare []byte
	for {
		s.mu.Lock()
		buf, closing := s.pending, s.closing
		s.pending = spare[:0]
		s.mu.Unlock()
		if len(buf) == 0 {
			spare = buf
			if closing {
				s.Fail(net.ErrClosed)
				return
			}
			<-s.wake
			continue
		}
		if _, err := s.Conn.Write(buf); err != nil {
			s.Fail(err)
			return
		}
		s.mu.Lock()
		s.queued -= len(buf)
		if s.room != nil && s.queued < s.cfg.Room {
			close(s.room)
			s.room = nil
		}
		s.mu.Unlock()
		if spare = buf; cap(spare) > s.cfg.Keep {
			spare = nil
		}
	}
}

// Flushed returns a channel that is closed when Run has returned.
func (s *Socket) Flushed() <-chan struct{} { return s.flushed }

// Err returns the reason why writing has stopped, or nil if it has not.
func (s *Socket) Err() error {
	if !s.Failed() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Failed reports whether writing has stopped. After Close it becomes true only when the remaining
// data was sent or lost.
func (s *Socket) Failed() bool {
	select {
	case <-s.stopped:
		return true
	default:
		return false
	}
}

// Over reports whether Write refuses data: after Close, or after writing has stopped. It takes
// s.mu.
func (s *Socket) Over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil || s.closing
}

// Stop ends writing with err as the reason, unless it has ended already, and wakes the callers of
// WaitRoom. Data from the server can still be read. The connection stays open. It takes s.mu.
func (s *Socket) Stop(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.stopped)
	}
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
}

// Fail closes the connection at once, with err as the reason if writing has not stopped already.
// Buffered data are lost. It calls OnEnd, unless that was called before. It takes s.mu, but does
// not hold it during OnEnd.
func (s *Socket) Fail(err error) {
	s.Stop(err)
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	_ = s.Conn.Close() // the cause is already known
	s.over()
}

// Close makes Write refuse data and returns at once, always with nil. Buffered data are still sent
// by Run, for up to Linger. It calls OnEnd. Further calls do nothing. It takes s.mu, but does not
// hold it during OnEnd.
func (s *Socket) Close() error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return nil
	}
	s.closing = true
	s.mu.Unlock()
	_ = s.SetDeadline(time.Now().Add(Linger)) // an error means that it is closed already
	s.over()
	return nil
}

// over wakes Run and calls OnEnd, unless OnEnd was called before. Call it without s.mu.
func (s *Socket) over() {
	s.wake.Notify()
	if s.cfg.OnEnd != nil {
		s.end.Do(func() { s.cfg.OnEnd(s) })
	}
}

// WaitRoom waits until fewer than Room bytes wait to be written. Returns ctx's error when ctx ends
// first, and the reason if writing has stopped.
//
// blocked reports whether the server has announced that it does not read. If it has not and a wait
// lasts for Stall, WaitRoom closes the connection with ErrStalled. nil: the server never announces
// it.
func (s *Socket) WaitRoom(ctx context.Context, blocked func() bool) error {
	room, err := s.full()
	if room == nil {
		return err
	}
	var stalled <-chan time.Time
	if s.cfg.Stall > 0 {
		t := time.NewTicker(s.cfg.Stall)
		defer t.Stop()
		stalled = t.C
	}
	for ; room != nil; room, err = s.full() {
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		case <-stalled:
			if blocked == nil || !blocked() {
				s.Fail(ErrStalled)
				return ErrStalled
			}
		}
	}
	return err
}

// full returns a channel that is closed when fewer than Room bytes are queued or writing stops. It
// returns nil and nil if fewer are queued already, and nil and the reason if writing has stopped.
// It takes s.mu.
func (s *Socket) full() (room <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.queued < s.cfg.Room {
		return nil, s.err
	}
	if s.room == nil {
		s.room = make(chan struct{})
	}
	return s.room, nil
}
