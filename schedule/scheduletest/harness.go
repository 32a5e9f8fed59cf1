package scheduletest

import (
	"context"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
)

// Store is what the suite opens: a store that can be closed.
type Store interface {
	schedule.Store
	Close(ctx context.Context) error
}

// Harness is one fresh schedule on a server: no entry of another Harness is seen in it. The function given to [Run] makes one for
// each case; it registers its own clean-up with t.Cleanup.
type Harness struct {
	// Open connects to the schedule as another process would. The suite closes what it opened before the case ends.
	Open func(t testing.TB) Store

	// Sever cuts the connections of s as a network would, without a word to either end, and lets s reconnect at once. Nil: the
	// cases that need it are skipped by name.
	Sever func(t testing.TB, s Store)

	// Restart stops the server and starts it again with its data; it returns when the server takes connections. Nil: the cases
	// that need it are skipped by name.
	Restart func(t testing.TB)

	// Down makes the server unreachable for every store of this Harness, those that are open included, until up is called. It
	// returns when it is unreachable. Nil: the cases that need it are skipped by name.
	Down func(t testing.TB) (up func())

	// Stray takes an entry's time away as a program would that shares the layout and dies in
	// between. Nil: no other program does; an older listener ends the claim on an entry's last
	// tick and keeps the entry.
	Stray func(t testing.TB, id string)

	// Secret is the password in the configuration of Open. No error may contain it. Empty: there is none.
	Secret string

	// Promises are what the adapter says of itself.
	Promises Promises

	// Report is the file below docs/capabilities of this module that says what the adapter can do; see the other suites. "":
	// nothing is compared.
	Report string

	// Lease is the shortest lease that the suite lets run out, and has to be much longer than a call takes. Zero: 400 ms.
	Lease time.Duration

	// Slack is how late something may be, and how long the suite looks before it believes that nothing comes. Zero: 500 ms.
	Slack time.Duration

	// Patience bounds every wait for something that must happen. Zero: 30 s.
	Patience time.Duration
}

// Promises are what an adapter promises beyond what every adapter must do. A promise that is not made skips its cases by name. An
// interface that the store offers without the promise fails the suite, so that no capability goes untested.
type Promises struct {
	List    bool // schedule.Lister
	Pause   bool // schedule.Pauser
	Watch   bool // schedule.Watcher
	Mend    bool // schedule.Mender
	Durable bool // what a call has confirmed survives Restart
}
