package bedrock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
)

func TestMain(m *testing.M) {
	if file := os.Getenv(envFile); file != "" {
		if err := serveFile(file, os.Getenv(envAddr)); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// patience limits every wait in these tests.
const patience = time.Minute

// serving is a running server.
type serving struct {
	*Server
	addr string
	stop func() error // stops it once and waits for its end
}

// serve runs a server until the test ends. If cmds are given, the server knows only these commands.
func serve(t testing.TB, c Config, cmds ...command) *serving {
	t.Helper()
	c.Listen = "127.0.0.1:0"
	if c.Service == nil {
		c.Service = new(jobs.Service) // the commands do not use it
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if cmds != nil {
		s.commands = cmds
	}
	ctx, cancel := context.WithCancel(context.Background())
	ln, err := s.Listen(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ln) }()
	sv := &serving{Server: s, addr: ln.Addr().String()}
	var once bool
	sv.stop = func() error {
		if once {
			return nil
		}
		once = true
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(patience):
			return errors.New("the server does not end")
		}
	}
	t.Cleanup(func() {
		if err := sv.stop(); err != nil {
			t.Error(err)
		}
	})
	return sv
}

// client is the client's end of a connection.
type client struct {
	t testing.TB
	net.Conn
	in *bufio.Reader
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	nc, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, nc)
}

func newClient(t testing.TB, nc net.Conn) *client {
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(2 * patience))
	return &client{t: t, Conn: nc, in: bufio.NewReader(nc)}
}

func (c *client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.t.Fatal("sending:", err)
	}
}

// said is a received answer.
type said struct {
	Status  string
	Headers []string
	Body    string
}

// receive reads one answer and checks its form strictly.
func (c *client) receive() (s said, err error) {
	line := func() string {
		if err != nil {
			return ""
		}
		var text string
		if text, err = c.in.ReadString('\n'); err == nil && !strings.HasSuffix(text, "\r\n") {
			err = fmt.Errorf("a line that ends without CRLF: %q", text)
		}
		return strings.TrimSuffix(text, "\r\n")
	}
	s.Status = line()
	length := -1
	for {
		h := line()
		if err != nil {
			return s, err
		}
		if h == "" {
			break
		}
		if n, ok := strings.CutPrefix(h, "Content-Length: "); ok {
			if length, err = strconv.Atoi(n); err != nil {
				return s, err
			}
			continue
		}
		s.Headers = append(s.Headers, h)
	}
	if length < 0 {
		return s, errors.New("an answer without Content-Length")
	}
	body := make([]byte, length)
	_, err = io.ReadFull(c.in, body)
	s.Body = string(body)
	return s, err
}

// next is receive for an answer that must come.
func (c *client) next() said {
	c.t.Helper()
	s, err := c.receive()
	if err != nil {
		c.t.Fatal("receiving:", err)
	}
	return s
}

// ask sends a request and returns the answer.
func (c *client) ask(text string) said {
	c.t.Helper()
	c.send(text)
	return c.next()
}

// wantEnd checks that the server closes the connection without further output.
func (c *client) wantEnd() {
	c.t.Helper()
	if b, err := c.in.ReadByte(); err == nil {
		c.t.Errorf("%q came, and more, instead of the end", b)
	} else if errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		c.t.Error("the connection is not closed")
	}
}

func isTimeout(err error) bool {
	var nerr net.Error
	return errors.As(err, &nerr) && nerr.Timeout()
}

// wantStatus checks the status.
func (s said) wantStatus(t testing.TB, want string) {
	t.Helper()
	if s.Status != want {
		t.Errorf("%q, want %q", s.Status, want)
	}
}

// service returns a service in memory that is closed with the test.
func service(t testing.TB) *jobs.Service {
	t.Helper()
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return over(t, store)
}

// over returns a service over a store; both are closed with the test.
func over(t testing.TB, store jobs.Store) *jobs.Service {
	t.Helper()
	s, err := jobs.New(jobs.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(s.Close(ctx), store.Close(ctx)); err != nil {
			t.Error("closing:", err)
		}
	})
	return s
}
