package testserver

import (
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// ErrMissing means that a server cannot be started because its programs are not installed.
var ErrMissing = errors.New("testserver: not installed")

// startTime bounds the start of one server, on a machine that does much else.
const startTime = 90 * time.Second

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
