package testserver

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// ErrMissing means that a server cannot be started because its programs are not installed.
var ErrMissing = errors.New("testserver: not installed")

// Thorough skips a test unless SWARMIJI_THOROUGH is set, as "make thorough" does. It is for tests
// that take long on two cores and repeat a quicker test in another configuration: a whole suite
// again, a second cluster of three nodes.
func Thorough(tb testing.TB) {
	tb.Helper()
	if !IsThorough() {
		tb.Skip("SWARMIJI_THOROUGH is not set; make thorough runs this")
	}
}

// IsThorough reports whether SWARMIJI_THOROUGH is set.
func IsThorough() bool { return os.Getenv("SWARMIJI_THOROUGH") != "" }

// startTime limits the start of one server, on a busy machine.
const startTime = 4 * time.Minute

// shared holds the servers of this test binary. It is the only variable of the package: a start
// costs time, so the tests of a binary share one server of each kind. Only the end of the process
// ends these servers.
var shared struct {
	rabbit    common[*Rabbit]
	redis     common[*Redis]
	nats      common[*NATS]
	postgres  common[*Postgres]
	pgbouncer common[*PgBouncer]
	natsd     struct { // the path of the NATS server program; finding it runs a go command
		mu   sync.Mutex
		path string
	}
}

// common is a server that the tests of one binary share.
type common[S reviver] struct {
	mu      sync.Mutex
	started bool
	server  S
	err     error
}

// reviver is a server that can repair the state that a test left.
type reviver interface {
	revive(ctx context.Context) error
}

// require returns the shared server. The first call starts it; later calls repair the state that a
// test left. It skips or fails the test if the server cannot be started.
func require[S reviver](tb testing.TB, c *common[S], start func(ctx context.Context) (S, error)) S {
	tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(tb.Context(), startTime)
	defer cancel()
	switch {
	case !c.started:
		c.server, c.err = start(ctx)
		c.started = true
	case c.err == nil: // after a failed start no later test waits for another one
		if err := c.server.revive(ctx); err != nil {
			giveUp(tb, err)
		}
	}
	if c.err != nil {
		giveUp(tb, c.err)
	}
	return c.server
}

// own starts a server for one test and closes it at the end of the test.
func own[S io.Closer](tb testing.TB, patience time.Duration, start func(ctx context.Context) (S, error)) S {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	s, err := start(ctx)
	if err != nil {
		giveUp(tb, err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("closing the server: %v", err)
		}
	})
	return s
}

// giveUp ends a test that has no server. It skips the test if the programs are missing and servers
// are not required. Otherwise it fails the test.
func giveUp(tb testing.TB, err error) {
	tb.Helper()
	if errors.Is(err, ErrMissing) && os.Getenv("SWARMIJI_REQUIRE_SERVERS") != "1" {
		tb.Skipf("skipped, set SWARMIJI_REQUIRE_SERVERS=1 to fail instead: %v", err)
	}
	tb.Fatal(err)
}

// Namespace returns a name that no other call has returned. A test uses it as the prefix of its
// queues, keys and subjects. It is valid in every adapter: lower-case letters and digits, beginning
// with a letter.
func Namespace() string { return "t" + strings.ToLower(rand.Text()[:12]) }

// UnusedAddr returns an address of this machine on which no server listens.
func UnusedAddr(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	if err := l.Close(); err != nil {
		tb.Fatal(err)
	}
	return l.Addr().String()
}
