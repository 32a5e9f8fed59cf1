package amqpconn

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/netconn"
)

const (
	socketRoom = 1 << 20   // bytes that may wait to be written before WaitRoom blocks
	keepBuffer = 256 << 10 // largest write buffer that is reused
	// stallTimeout is the time after which a server without an alarm that reads nothing counts as
	// failed.
	stallTimeout = 60 * time.Second
)

// socket records the first byte that the server sends, and makes the headers of messages readable,
// see fieldReader.
type socket struct {
	*netconn.Socket
	in    *fieldReader
	first atomic.Int32 // first byte read, plus 1; it reveals a wrong protocol in the handshake
}

// newSocket returns a socket over c and starts the goroutine that writes its buffered data. The
// goroutine ends after Close or a failure, and then closes the connection.
func newSocket(c net.Conn) *socket {
	s := &socket{Socket: netconn.NewSocket(c, netconn.SocketConfig{Room: socketRoom, Keep: keepBuffer, Stall: stallTimeout})}
	s.in = newFieldReader(s.Socket)
	go s.Run()
	return s
}

// Read reads from the connection and records the first byte.
func (s *socket) Read(p []byte) (int, error) {
	n, err := s.in.Read(p)
	if n > 0 && s.first.Load() == 0 {
		s.first.Store(int32(p[0]) + 1)
	}
	return n, err
}
