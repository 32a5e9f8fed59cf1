package bedrock

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
)

// slow is a server with one large job and a client that receives little data at a time.
type slow struct {
	*serving
	nc     *net.TCPConn
	client *client
	data   string
}

// slowClients calls test for each way in which an answer may wait for its client.
func slowClients(t *testing.T, timeout time.Duration, size int, test func(t *testing.T, s *slow)) {
	t.Helper()
	for name, c := range map[string]struct{ encrypted, small bool }{
		"in the system":            {},
		"in the server":            {small: true},
		"in the server, encrypted": {small: true, encrypted: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, clients, _ := certificates(t)
			config := Config{WriteTimeout: timeout}
			if c.encrypted {
				config.TLS = server
			}
			s := &slow{serving: jobsServer(t, config), data: `{"text":"` + strings.Repeat("x", size) + `"}`}
			if _, err := s.c.Service.Create(t.Context(), jobs.Spec{Name: "foo", Data: []byte(s.data)}); err != nil {
				t.Fatal(err)
			}
			nc, err := net.Dial("tcp", s.addr)
			if err != nil {
				t.Fatal(err)
			}
			s.nc = nc.(*net.TCPConn)
			_ = s.nc.SetReadBuffer(16 << 10)
			if c.encrypted {
				nc = tls.Client(nc, clients)
			}
			s.client = newClient(t, nc)
			if c.small {
				testwait.Until(t, "it is served", func() bool { return s.Stats().Connections == 1 })
				s.each(func(c *conn) { _ = c.tcp.Conn.(*net.TCPConn).SetWriteBuffer(8 << 10) })
			}
			s.client.send("GetJob\nname: foo\n\n")
			test(t, s)
		})
	}
}

// TestReadsInSteps shows that a slow client gets its job, although its receive window opens less
// often than once per WriteTimeout.
func TestReadsInSteps(t *testing.T) {
	const size, part = 200 << 10, 1 << 10
	slowClients(t, 200*time.Millisecond, size, func(t *testing.T, s *slow) {
		tick := time.NewTicker(10 * time.Millisecond) // 64 KiB in more than WriteTimeout
		defer tick.Stop()
		for read := 0; read < size; read += part {
			if _, err := io.CopyN(io.Discard, s.client.Conn, part); err != nil {
				t.Fatalf("after %d bytes: %v", read, err)
			}
			<-tick.C
		}
		wantState(t, s.serving, 1, jobs.Running)
		if n := s.Stats().GivenBack; n != 0 {
			t.Errorf("%d were given back", n)
		}
	})
}

// TestReadsNothing shows that the job of a client that never reads is finally given back, whether
// its system responds or not.
func TestReadsNothing(t *testing.T) {
	for name, vanishes := range map[string]bool{"connected": false, "vanished": true} {
		t.Run(name, func(t *testing.T) {
			slowClients(t, 100*time.Millisecond, 300<<10, func(t *testing.T, s *slow) {
				wantState(t, s.serving, 1, jobs.Running)
				if vanishes {
					vanish(t, s.nc)
				}
				if s.c.TLS != nil {
					wantState(t, s.serving, 1, jobs.Queued)
				} else {
					gotByAnother(t, s.serving)
				}
				testwait.Until(t, "its connection is closed, and its memory free", func() bool {
					return s.Stats().Connections <= 1 && s.Stats().Memory == 0
				})
			})
		})
	}
}
