package testserver_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

// echo starts a server that sends back the bytes that it receives, and returns its address.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

func connect(t *testing.T, p *testserver.Proxy) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", p.Addr(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// talk sends a word and waits up to d until the word comes back.
func talk(c net.Conn, d time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("word")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 4))
	return err
}

func mustTalk(t *testing.T, c net.Conn) {
	t.Helper()
	if err := talk(c, 5*time.Second); err != nil {
		t.Fatalf("through the proxy: %v", err)
	}
}

// mustEnd fails the test unless the peer closes the connection.
func mustEnd(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the connection is still open")
	}
}

func TestProxySever(t *testing.T) {
	p := testserver.NewProxy(t, echo(t))
	old := connect(t, p)
	mustTalk(t, old)
	p.Sever()
	mustEnd(t, old)
	mustTalk(t, connect(t, p))
}

func TestProxyCutAndHeal(t *testing.T) {
	p := testserver.NewProxy(t, echo(t))
	old := connect(t, p)
	mustTalk(t, old)
	p.Cut()
	mustEnd(t, old)
	p.Sever() // does not undo the cut
	if c, err := net.DialTimeout("tcp", p.Addr(), time.Second); err == nil {
		c.Close()
		t.Fatal("a connection was taken while cut")
	}
	p.Heal()
	mustTalk(t, connect(t, p))
}

func TestProxyBlackHole(t *testing.T) {
	for name, dir := range map[string][2]bool{"up": {true, false}, "down": {false, true}, "both": {true, true}} {
		t.Run(name, func(t *testing.T) {
			p := testserver.NewProxy(t, echo(t))
			old := connect(t, p)
			mustTalk(t, old)
			p.BlackHole(dir[0], dir[1])
			for _, c := range []net.Conn{old, connect(t, p)} {
				if err := talk(c, 200*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("talking into the black hole: %v; want silence", err)
				}
			}
			p.Heal()
			mustEnd(t, old)
			mustTalk(t, connect(t, p))
		})
	}
}

func TestProxyLatencyAndBandwidth(t *testing.T) {
	p := testserver.NewProxy(t, echo(t))
	c := connect(t, p)
	p.Latency(100*time.Millisecond, 0)
	begin := time.Now()
	mustTalk(t, c)
	if d := time.Since(begin); d < 200*time.Millisecond {
		t.Errorf("a round trip took %v with 100 ms each way", d)
	}
	p.Heal()
	mustTalk(t, c) // no byte was lost, so the connection survives
	p.Bandwidth(100)
	begin = time.Now()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	go c.Write(make([]byte, 50<<10))
	if _, err := io.ReadFull(c, make([]byte, 50<<10)); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begin); d < 300*time.Millisecond {
		t.Errorf("50 kB took %v at 100 kB/s", d)
	}
}

func TestProxyTruncate(t *testing.T) {
	p := testserver.NewProxy(t, echo(t))
	p.Truncate(false, true, 6)
	c := connect(t, p)
	mustTalk(t, c)
	if _, err := c.Write([]byte("word")); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil || string(got) != "wo" {
		t.Errorf("after 6 bytes: %q, %v; want the first 2 of the second word and the end", got, err)
	}
	p.Heal()
	mustTalk(t, connect(t, p))
}

func TestProxyURL(t *testing.T) {
	p := testserver.NewProxy(t, "127.0.0.1:1")
	if got, want := p.URL("amqp://u:p@127.0.0.1:1/v%2F1"), "amqp://u:p@"+p.Addr()+"/v%2F1"; got != want {
		t.Errorf("URL = %q, want %q", got, want)
	}
}
