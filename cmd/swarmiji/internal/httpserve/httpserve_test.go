package httpserve_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/httpserve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestServeEnds shows that clients that send nothing, or half a request, do not make a failure of
// the end: browsers open connections in advance.
func TestServeEnds(t *testing.T) {
	for _, request := range []string{"", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"} {
		ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		reached := make(chan struct{}, 2)
		h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			reached <- struct{}{}
			_, _ = io.ReadAll(r.Body)
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- httpserve.Serve(ctx, ln, h, 50*time.Millisecond) }()
		var conns []net.Conn
		for _, text := range []string{request, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"} {
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
			if _, err := io.WriteString(c, text); err != nil {
				t.Fatal(err)
			}
			if text != "" {
				<-reached
			}
		}
		// the first connection was accepted before the second one
		if _, err := bufio.NewReader(conns[1]).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("after %q: %v", request, err)
		}
		for _, c := range conns {
			_ = c.Close()
		}
	}
}
