package natsconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	// socketRoom is how many bytes may wait to be written before publishers hold back.
	socketRoom = 4 << 20
	// keepBuffer is the largest write buffer that is kept for the next write.
	keepBuffer = 1 << 20
	// closeLinger is how long what was written before Close may take to leave.
	closeLinger = 250 * time.Millisecond
)

// errNotWritten stands in each error of Write.
var errNotWritten = errors.New("not written")

// socket is a net.Conn whose Write never waits: it appends to a buffer, and one goroutine writes whatever has gathered
// since its last write. The client library writes with its lock held, so that with a plain socket a server that does not
// read would hold up every call, whatever its ctx says. Publishers bound the buffer with waitRoom. A server that takes
// nothing does not answer pings either and is given up for that.
type socket struct {
	net.Conn
	onEnd func(*socket) // called once, when the connection is closed or has failed

	mu      sync.Mutex
	pending []byte
	queued  int           // pending and what is being written
	room    chan struct{} // non-nil while somebody waits; closed when there is room
	err     error         // why nothing more is written
	closing bool

	wake chan struct{} // capacity 1
	end  sync.Once
}

func newSocket(c net.Conn, tasks *sync.WaitGroup, onEnd func(*socket)) *socket {
	s := &socket{Conn: c, onEnd: onEnd, wake: make(chan struct{}, 1)}
	tasks.Go(s.flush)
	return s
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
	s.mu.Unlock()
	s.kick()
	return len(p), nil
}

func (s *socket) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// flush writes what gathers until the connection fails or is closed.
func (s *socket) flush() {
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
		if _, err := s.Conn.Write(buf); err != nil {
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

// over reports whether Write takes nothing any more.
func (s *socket) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil || s.closing
}

// fail ends the connection for good.
func (s *socket) fail(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.closing = true
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
	s.mu.Unlock()
	_ = s.Conn.Close() // the cause is already known
	s.kick()
	s.end.Do(func() { s.onEnd(s) })
}

// waitRoom waits until little enough is buffered, or until the connection has ended.
func (s *socket) waitRoom(ctx context.Context) error {
	for {
		s.mu.Lock()
		if full := s.err == nil && s.queued >= socketRoom; !full { // what has failed is told by the next write
			s.mu.Unlock()
			return nil
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
	_ = s.SetDeadline(time.Now().Add(closeLinger)) // a failure means that it is closed already
	s.kick()
	s.end.Do(func() { s.onEnd(s) })
	return nil
}
