package natsconn

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/connect/natsconnect"
)

// lateServer is a server in this process that completes the handshake only while the connection is
// being closed.
type lateServer struct{ dialled chan struct{} }

func (l *lateServer) InProcessConn() (net.Conn, error) {
	here, there := net.Pipe()
	_ = there.Close() // only the addresses of here are needed
	select {
	case l.dialled <- struct{}{}:
	default:
	}
	return &lateConn{Conn: here, closed: make(chan struct{})}, nil
}

type lateConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
	reads  int
}

func (c *lateConn) Read(p []byte) (int, error) {
	switch c.reads++; c.reads {
	case 1:
		return copy(p, "INFO {\"server_id\":\"x\",\"version\":\"2.15.2\",\"max_payload\":1048576,\"headers\":true}\r\n"), nil
	case 2:
		<-c.closed
		return copy(p, "PONG\r\n"), nil
	}
	return 0, io.EOF
}

func (c *lateConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c *lateConn) SetDeadline(time.Time) error      { return nil }
func (c *lateConn) SetReadDeadline(time.Time) error  { return nil }
func (c *lateConn) SetWriteDeadline(time.Time) error { return nil }

func (c *lateConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// A handshake that ends while the Conn is being closed leaves no goroutine.
func TestCloseDuringTheHandshake(t *testing.T) {
	before := goleak.IgnoreCurrent()
	srv := &lateServer{dialled: make(chan struct{}, 1)}
	c, err := New(natsconnect.Config{InProcess: srv}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	waits := make(chan error, 1)
	go func() {
		_, err := c.Session(ctx)
		waits <- err
	}()
	<-srv.dialled
	if err := c.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := <-waits; !errors.Is(err, ErrClosed) {
		t.Errorf("Session: %v, want ErrClosed", err)
	}
	goleak.VerifyNone(t, before)
}
