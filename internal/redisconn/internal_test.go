package redisconn

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A call that got no connection has sent nothing, whatever other calls have written meanwhile.
func TestNoConnectionMeansNotSent(t *testing.T) {
	for _, err := range []error{redis.ErrPoolTimeout, redis.ErrPoolExhausted, fmt.Errorf("wrapped: %w", redis.ErrPoolTimeout)} {
		if got := classify(err, true); !errors.Is(got, ErrUnavailable) || errors.Is(got, ErrIndeterminate) {
			t.Errorf("%v is %v, want ErrUnavailable", err, got)
		}
	}
}

// Only Close of the Conn gives ErrClosed. The closed client of a node that left the cluster does
// not.
func TestClosedNodeIsNotAClosedConn(t *testing.T) {
	c, err := New(Config{Redis: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	gone := func(context.Context) (any, error) { return nil, redis.ErrClosed }
	if _, err := c.attempt(t.Context(), "", gone); !errors.Is(Class(err), ErrUnavailable) || errors.Is(err, ErrClosed) {
		t.Errorf("a closed node: %v, want ErrUnavailable", err)
	}
	closing := func(context.Context) (any, error) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_ = c.Close(ended) // waits for this very call
		return nil, redis.ErrClosed
	}
	if _, err := c.attempt(t.Context(), "", closing); !errors.Is(Class(err), ErrClosed) || Repeatable(err) {
		t.Errorf("a closed Conn: %v, want ErrClosed, which is not to be repeated", err)
	}
}

// Error answers with the same beginning get different classes.
func TestClassOfAnswer(t *testing.T) {
	c, err := New(Config{Redis: &redis.UniversalOptions{Addrs: []string{answering(t, "-BUSYGROUP Consumer Group name already exists")}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := c.Do(ctx, "XGROUP", "CREATE", "s", "g", "0"); !errors.Is(err, ErrRefused) {
		t.Errorf("BUSYGROUP: %v, want ErrRefused: repeating it would be in vain", err)
	}
}

// A server that loads its data has not refused its settings: CheckSettings may be called again.
func TestCheckSettingsOfALoadingServer(t *testing.T) {
	c, err := New(Config{
		Redis:  &redis.UniversalOptions{Addrs: []string{answering(t, "-LOADING Redis is loading the dataset in memory")}},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	for range 2 {
		if notes, err := c.CheckSettings(t.Context()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("CheckSettings: %q, %v, want ErrUnavailable", notes, err)
		}
	}
}

// answering returns the address of a server that completes the handshake and answers all other
// commands with line.
func answering(t testing.TB, line string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for r := bufio.NewReader(conn); ; {
					name, err := command(r)
					if err != nil {
						return
					}
					answer := line
					switch name {
					case "hello":
						answer = "*0"
					case "client", "auth", "select", "ping":
						answer = "+OK"
					}
					if _, err := fmt.Fprintf(conn, "%s\r\n", answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// command reads a command and returns its name.
func command(r *bufio.Reader) (string, error) {
	var n int
	if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
		return "", err
	}
	var name string
	for i := range n {
		var size int
		if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
			return "", err
		}
		arg := make([]byte, size+2)
		for j := range arg {
			b, err := r.ReadByte()
			if err != nil {
				return "", err
			}
			arg[j] = b
		}
		if i == 0 {
			name = string(arg[:size])
		}
	}
	return name, nil
}
