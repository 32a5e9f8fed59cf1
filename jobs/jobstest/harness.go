package jobstest

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
)

// Harness is a new database without jobs, separate from those of other Harnesses. The function
// given to [Run] creates one for each case and registers its clean-up with t.Cleanup.
type Harness struct {
	// Open connects to the database like a further process. The suite closes the store before the case
	// ends.
	Open func(t testing.TB) jobs.Store

	// Sever cuts the connections of s without notifying either end, and lets s reconnect at once. nil:
	// cases that need it are skipped by name.
	Sever func(t testing.TB, s jobs.Store)

	// Restart restarts the server with its data and returns when it accepts connections. For a file it
	// makes the store read all data again. nil: cases that need it are skipped by name.
	Restart func(t testing.TB)

	// Down makes the server unreachable for every store of this Harness, open ones included, until up
	// is called. It returns when the server is unreachable. nil: cases that need it are skipped by
	// name.
	Down func(t testing.TB) (up func())

	// Secret is the password in the configuration of Open. No error may contain it. "": no password.
	Secret string

	// Promises are the capabilities that the adapter declares.
	Promises Promises

	// Report is the file below docs/capabilities of this module that describes the adapter; see the
	// other suites. "": not compared.
	Report string

	// Slack is the time for which the suite waits for an event that must not happen. Default: 500 ms.
	Slack time.Duration

	// Patience limits every wait for an event that must happen. Default: 1 min.
	Patience time.Duration
}

// Promises are capabilities beyond those that every adapter must have. Without a promise its cases
// are skipped by name. If a transaction implements an interface without the promise, the suite
// fails, so that every capability is tested.
type Promises struct {
	Parallel bool // transactions with different locks do not wait for each other
	Take     bool // jobstore.Taker
	Drop     bool // jobstore.Dropper
	Weigh    bool // jobstore.Weigher
	Durable  bool // confirmed changes survive Restart
}
