// Package netconn has what the connections of several technologies share: a socket whose writes never wait, and the
// functions that are told of a connection's state.
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

// Linger is how long what was written before [Socket.Close] may take to leave.
const Linger = 250 * time.Millisecond

// ErrStalled ends a connection whose server has taken nothing for [SocketConfig].Stall.
var ErrStalled = errors.New("the server has stopped reading")

// ErrNotWritten stands in each error of [Socket.Write]. Client libraries pass it on, while their own errors do not hold it.
var ErrNotWritten = errors.New("not written")

// SocketConfig configures [NewSocket].
type SocketConfig struct {
	// Room is how many bytes may wait to be written before [Socket.WaitRoom] waits.
	Room int
	// Keep is the largest write buffer that is kept for the next write.
	Keep int
	// Stall is how long a server that says nothing may take nothing while somebody waits for room. 0: for ever.
	Stall time.Duration
	// OnEnd is called once, when the connection is closed or has failed. nil: nothing is called.
	OnEnd func(*Socket)
}

// Socket is a net.Conn whose Write never waits: it appends to a buffer, and [Socket.Run] writes whatever has gathered
// since its last write. So many small frames share one system call with no timer, and no caller of a client library, which
// may write with its lock held, is held up by a server that does not read. Publishers bound the buffer with WaitRoom,
// which takes a ctx. Make one with [NewSocket]. Safe for concurrent use.
type Socket struct {
	net.Conn
	cfg SocketConfig

	mu      sync.Mutex
	pending []byte
	queued  int           // pending and what is being written
	room    chan struct{} // non-nil while somebody waits; closed when there is room
	err     error         // why nothing more is written
	closing bool
	taken   atomic.Int64

	wake    wake.Signal
	flushed chan struct{} // closed when Run has returned
	stopped chan struct{} // closed with err
	end     sync.Once
}

// NewSocket returns a Socket over c. Run it in a goroutine.
func NewSocket(c net.Conn, cfg SocketConfig) *Socket {
	return &Socket{Conn: c, cfg: cfg, wake: wake.New(), flushed: make(chan struct{}), stopped: make(chan struct{})}
}

// Write takes a copy of p. Once the connection has failed it takes nothing and returns [ErrNotWritten] with the reason.
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

// Taken returns how many bytes Write took, all of which may leave.
func (s *Socket) Taken() int64 { return s.taken.Load() }

// Run writes what gathers until the connection fails or is closed.
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

// Flushed is closed when Run has returned.
func (s *Socket) Flushed() <-chan struct{} { return s.flushed }

// Err says why nothing more is written; nil while something is.
func (s *Socket) Err() error {
	if !s.Failed() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Failed reports whether nothing more is written. What was written before Close may still be on its way.
func (s *Socket) Failed() bool {
	select {
	case <-s.stopped:
		return true
	default:
		return false
	}
}

// Over reports whether Write takes nothing any more.
func (s *Socket) Over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil || s.closing
}

// Stop ends writing, with err as the reason if there is none yet. What the server sends can still be read.
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

// Fail ends the connection for good, without waiting for anything, with err as the reason if there is none yet.
func (s *Socket) Fail(err error) {
	s.Stop(err)
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	_ = s.Conn.Close() // the cause is already known
	s.over()
}

// Close returns at once; what was written leaves for a moment longer.
func (s *Socket) Close() error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return nil
	}
	s.closing = true
	s.mu.Unlock()
	_ = s.SetDeadline(time.Now().Add(Linger)) // a failure means that it is closed already
	s.over()
	return nil
}

func (s *Socket) over() {
	s.wake.Notify()
	if s.cfg.OnEnd != nil {
		s.end.Do(func() { s.cfg.OnEnd(s) })
	}
}

// WaitRoom waits until little enough is buffered. Its errors are those of the connection, and ctx's. blocked says whether
// the server has told that it will not read; if it has not and reads nothing for the time of Stall, the connection is
// given up. nil: it has not.
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

// full returns what is closed when there is room; nil: there is, or err tells why there will be none.
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
