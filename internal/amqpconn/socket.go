package amqpconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// socketRoom is how many bytes may wait to be written before publishers hold back.
	socketRoom = 1 << 20
	// keepBuffer is the largest write buffer that is kept for the next write.
	keepBuffer = 256 << 10
	// closeLinger is how long Close lets what was written before it leave.
	closeLinger = 250 * time.Millisecond
	// stallTimeout is how long a server that has no alarm may take nothing before the connection is given up.
	stallTimeout = 60 * time.Second
)

var errStalled = errors.New("the server has stopped reading")

// errNotWritten stands in each error of Write. The client library passes it on, while its own errors do not hold it.
var errNotWritten = errors.New("not written")

// socket is a net.Conn whose Write never waits: it appends to a buffer, and one goroutine writes whatever has gathered
// since its last write. So many small frames share one system call with no timer, and no caller of the client library can
// be held up by a server that does not read. Publishers bound the buffer with waitRoom, which takes a ctx.
type socket struct {
	net.Conn

	mu      sync.Mutex
	pending []byte
	queued  int           // pending and what is being written
	room    chan struct{} // non-nil while somebody waits; closed when there is room
	err     error         // why nothing more is written
	closing bool
	taken   atomic.Int64 // bytes that Write took, all of which may leave

	wake    chan struct{} // capacity 1
	flushed chan struct{} // closed when the flusher has ended
	done    chan struct{} // closed with err

	first atomic.Int32 // the first byte read, plus 1; tells a wrong protocol in the handshake
}

func newSocket(c net.Conn) *socket {
	s := &socket{Conn: c, wake: make(chan struct{}, 1), flushed: make(chan struct{}), done: make(chan struct{})}
	go s.flush()
	return s
}

// Read notes the first byte.
func (s *socket) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if n > 0 && s.first.Load() == 0 {
		s.first.Store(int32(p[0]) + 1)
	}
	return n, err
}

// Write takes a copy of p. Once the connection has failed it takes nothing and returns errNotWritten with the reason.
func (s *socket) Write(p []byte) (int, error) {
	s.mu.Lock()
	if s.err != nil || s.closing {
		err := s.err
		s.mu.Unlock()
		if err == nil {
			err = net.ErrClosed
		}
		return 0, fmt.Errorf("%w: %w", errNotWritten, err)
	}
	s.pending = append(s.pending, p...)
	s.queued += len(p)
	s.taken.Add(int64(len(p)))
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return len(p), nil
}

// flush writes what gathers until the connection fails or is closed.
func (s *socket) flush() {
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
				s.fail(net.ErrClosed)
				return
			}
			<-s.wake
			continue
		}
		_, err := s.Conn.Write(buf)
		if err != nil {
			s.fail(err)
			return
		}
		s.mu.Lock()
		s.queued -= len(buf)
		if s.room != nil && s.queued < socketRoom {
			close(s.room)
			s.room = nil
		}
		s.mu.Unlock()
		if spare = buf; cap(spare) > keepBuffer {
			spare = nil
		}
	}
}

// fail ends the connection for good.
func (s *socket) fail(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
		close(s.done)
	}
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
	s.mu.Unlock()
	_ = s.Conn.Close() // the cause is already known
}

// failed reports whether nothing more is written.
func (s *socket) failed() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// waitRoom waits until little enough is buffered. blocked says whether the server has told that it will not read; if it
// has not and reads nothing for a long time, the connection is given up.
func (s *socket) waitRoom(ctx context.Context, blocked func() bool) error {
	s.mu.Lock()
	if s.err != nil || s.queued < socketRoom {
		err := s.err
		s.mu.Unlock()
		return err
	}
	s.mu.Unlock()
	t := time.NewTimer(stallTimeout)
	defer t.Stop()
	for {
		s.mu.Lock()
		if s.err != nil || s.queued < socketRoom {
			err := s.err
			s.mu.Unlock()
			return err
		}
		if s.room == nil {
			s.room = make(chan struct{})
		}
		room := s.room
		s.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			if !blocked() {
				s.fail(errStalled)
				return errStalled
			}
			t.Reset(stallTimeout)
		}
	}
}

// Close returns at once; what was written leaves for a moment longer.
func (s *socket) Close() error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return nil
	}
	s.closing = true
	s.mu.Unlock()
	_ = s.Conn.SetDeadline(time.Now().Add(closeLinger)) // a failure means that it is closed already
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// abort closes without waiting for anything.
func (s *socket) abort(err error) {
	s.fail(err)
	_ = s.Close()
}
