package jobstest

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
)

// Harness is one fresh database: no job of another Harness is seen in it. The function given to [Run] makes one for each case; it
// registers its own clean-up with t.Cleanup.
type Harness struct {
	// Open connects to the database as another process would. The suite closes what it opened before the case ends.
	Open func(t testing.TB) jobs.Store

	// Sever cuts the connections of s as a network would, without a word to either end, and lets s reconnect at once. Nil: the
	// cases that need it are skipped by name.
	Sever func(t testing.TB, s jobs.Store)

	// Restart stops the server and starts it again with its data; it returns when the server takes connections. For a file: what
	// makes sure that everything is read anew. Nil: the cases that need it are skipped by name.
	Restart func(t testing.TB)

	// Down makes the server unreachable for every store of this Harness, those that are open included, until up is called. It
	// returns when it is unreachable. Nil: the cases that need it are skipped by name.
	Down func(t testing.TB) (up func())

	// Secret is the password in the configuration of Open. No error may contain it. Empty: there is none.
	Secret string

	// Promises are what the adapter says of itself.
	Promises Promises

	// Report is the file below docs/capabilities of this module that says what the adapter can do; see the other suites. "":
	// nothing is compared.
	Report string

	// Slack is how long the suite looks before it believes that nothing comes. Zero: 500 ms.
	Slack time.Duration

	// Patience bounds every wait for something that must happen. Zero: 30 s.
	Patience time.Duration
}

// Promises are what an adapter promises beyond what every adapter must do. A promise that is not made skips its cases by name. An
// interface that a transaction offers without the promise fails the suite, so that no capability goes untested.
type Promises struct {
	Parallel bool // transactions that lock different things do not wait for each other
	Take     bool // jobstore.Taker
	Drop     bool // jobstore.Dropper
	Weigh    bool // jobstore.Weigher
	Durable  bool // what a call has confirmed survives Restart
}
