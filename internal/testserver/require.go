package testserver

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// ErrMissing means that a server cannot be started because its programs are not installed.
var ErrMissing = errors.New("testserver: not installed")

// Thorough skips a test unless SWARMIJI_THOROUGH is set, as "make thorough" does. It is for what takes long on two cores and
// shows with another configuration what quicker tests show too: a whole suite once more, a second cluster of three nodes.
func Thorough(tb testing.TB) {
	tb.Helper()
	if !IsThorough() {
		tb.Skip("SWARMIJI_THOROUGH is not set; make thorough runs this")
	}
}

// IsThorough reports whether SWARMIJI_THOROUGH is set.
func IsThorough() bool { return os.Getenv("SWARMIJI_THOROUGH") != "" }

// startTime bounds the start of one server, on a machine that does much else.
const startTime = 90 * time.Second

// shared are the servers of this test binary. It is the one variable of the package: a start costs time, so the tests of a
// binary share one server of each kind, and only the end of the process ends it.
var shared struct {
	rabbit   common[*Rabbit]
	redis    common[*Redis]
	nats     common[*NATS]
	postgres common[*Postgres]
	natsd    struct { // the program of NATS servers, which takes a go command to find
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

type reviver interface {
	revive(ctx context.Context) error
}

// require returns the shared server: the first call starts it, later ones mend what a test left.
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
	case c.err == nil: // once it could not be started, no further test waits for another try
		if err := c.server.revive(ctx); err != nil {
			giveUp(tb, err)
		}
	}
	if c.err != nil {
		giveUp(tb, c.err)
	}
	return c.server
}

// own starts a server for one test and closes it at the test's end.
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

// giveUp ends a test that has no server: skipped when the programs are missing, unless servers are required.
func giveUp(tb testing.TB, err error) {
	tb.Helper()
	if errors.Is(err, ErrMissing) && os.Getenv("SWARMIJI_REQUIRE_SERVERS") != "1" {
		tb.Skipf("skipped, set SWARMIJI_REQUIRE_SERVERS=1 to fail instead: %v", err)
	}
	tb.Fatal(err)
}

// Namespace returns a name that no other call has returned, for a test to keep its queues, keys and subjects under. It is
// valid in every adapter: lower-case letters and digits, beginning with a letter.
func Namespace() string { return "t" + strings.ToLower(rand.Text()[:12]) }
