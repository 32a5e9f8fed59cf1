package redisconn

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

func open(t testing.TB, cfg Config) *Conn {
	t.Helper()
	quick := *cfg.Redis
	quick.MinRetryBackoff, quick.MaxRetryBackoff = 5*time.Millisecond, 50*time.Millisecond
	cfg.Redis = &quick
	c, err := New(cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

func options(srv *testserver.Redis) *redis.UniversalOptions {
	return &redis.UniversalOptions{Addrs: []string{srv.Addr()}, Username: srv.User(), Password: srv.Password()}
}

// wantIs checks that err is want and holds no password.
func wantIs(t testing.TB, err, want error, what string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
	if err != nil && strings.Contains(err.Error(), "secret-") {
		t.Errorf("%s: the password is in %v", what, err)
	}
}

// lossy is a network that loses the answer to the next command that contains a text, together with
// its connection.
type lossy struct {
	mu   sync.Mutex
	text []byte
	lost chan struct{}
}

func (l *lossy) loseAnswer(text string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text, l.lost = []byte(text), make(chan struct{})
	return l.lost
}

func (l *lossy) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &lossyConn{Conn: conn, l: l}, nil
}

type lossyConn struct {
	net.Conn
	l    *lossy
	lose chan struct{}
}

func (c *lossyConn) Write(p []byte) (int, error) {
	c.l.mu.Lock()
	if c.l.text != nil && bytes.Contains(p, c.l.text) {
		c.lose, c.l.text = c.l.lost, nil
	}
	c.l.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *lossyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.lose != nil {
		close(c.lose)
		c.lose = nil
		_ = c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// fake is a server that answers scripts with prepared answers.
type fake struct {
	addr string

	mu      sync.Mutex
	answers []string // answers to the next scripts; the last one is repeated
	scripts int
}

func newFake(t testing.TB, answers ...string) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{addr: l.Addr().String(), answers: answers}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			wg.Go(func() { f.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return f
}

func (f *fake) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	r := bufio.NewReader(conn)
	for {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		if _, err := io.WriteString(conn, f.answer(args)+"\r\n"); err != nil {
			return
		}
	}
}

func (f *fake) answer(args []string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch strings.ToLower(args[0]) {
	case "evalsha", "eval":
		f.scripts++
		a := f.answers[0]
		if len(f.answers) > 1 {
			f.answers = f.answers[1:]
		}
		return a
	case "ping":
		return "+PONG"
	case "hello":
		return "-ERR unknown command 'HELLO'"
	}
	return "+OK"
}

func (f *fake) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.scripts
}

// readCommand reads one command and returns its arguments.
func readCommand(r *bufio.Reader) ([]string, error) {
	line := func() (int, error) {
		s, err := r.ReadString('\n')
		if err != nil || len(s) < 3 {
			return 0, io.ErrUnexpectedEOF
		}
		return strconv.Atoi(strings.TrimSpace(s[1:]))
	}
	n, err := line()
	if err != nil || n < 1 {
		return nil, io.ErrUnexpectedEOF
	}
	args := make([]string, n)
	for i := range args {
		size, err := line()
		if err != nil {
			return nil, err
		}
		data := make([]byte, size+2)
		if _, err := io.ReadFull(r, data); err != nil {
			return nil, err
		}
		args[i] = string(data[:size])
	}
	return args, nil
}
