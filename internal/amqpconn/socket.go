package amqpconn

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/netconn"
)

const (
	socketRoom = 1 << 20   // bytes that may wait to be written before publishers hold back
	keepBuffer = 256 << 10 // the largest write buffer that is kept for the next write
	// stallTimeout is how long a server that has no alarm may take nothing before the connection is given up.
	stallTimeout = 60 * time.Second
)

// socket notes the first byte that the server sends.
type socket struct {
	*netconn.Socket
	first atomic.Int32 // the first byte read, plus 1; tells a wrong protocol in the handshake
}

func newSocket(c net.Conn) *socket {
	s := &socket{Socket: netconn.NewSocket(c, netconn.SocketConfig{Room: socketRoom, Keep: keepBuffer, Stall: stallTimeout})}
	go s.Run()
	return s
}

// Read notes the first byte.
func (s *socket) Read(p []byte) (int, error) {
	n, err := s.Socket.Read(p)
	if n > 0 && s.first.Load() == 0 {
		s.first.Store(int32(p[0]) + 1)
	}
	return n, err
}
