package scheduletest

import (
	"context"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
)

// Store is the store under test: a schedule.Store that can be closed.
type Store interface {
	schedule.Store
	Close(ctx context.Context) error
}

// Harness gives a test case one fresh schedule on a server; it shares no entries with other
// Harnesses. [Run] makes one for each case. The function that makes it registers the clean-up with
// t.Cleanup.
type Harness struct {
	// Open opens a store of the schedule, as another process would. The suite closes it before the
	// case ends.
	Open func(t testing.TB) Store

	// Sever cuts the connections of s without notice to either end, and lets s reconnect at once. Nil:
	// cases that need it are skipped.
	Sever func(t testing.TB, s Store)

	// Restart stops the server and starts it again with its data. It returns when the server accepts
	// connections. Nil: cases that need it are skipped.
	Restart func(t testing.TB)

	// Down makes the server unreachable for all stores of this Harness, open ones included, until up
	// is called. It returns when the server is unreachable. Nil: cases that need it are skipped.
	Down func(t testing.TB) (up func())

	// Stray removes the due time of an entry, as another program does that shares the layout and dies
	// between two steps. Nil: no other program writes to the store. Then the suite ends the claim on
	// the entry's last tick and keeps the entry, as an older listener did.
	Stray func(t testing.TB, id string)

	// Begin begins a transaction on the database of the stores, by a connection that belongs to none
	// of them. Needed with the promise Transactions.
	Begin func(t testing.TB) Transaction

	// Foreign begins transactions that the stores must refuse, by the names of their databases.
	Foreign map[string]func(t testing.TB) Transaction

	// Secret is the password in the configuration of Open. No error may contain it. "": no password.
	Secret string

	// Promises are the optional features of the adapter.
	Promises Promises

	// Report is the file in docs/capabilities of this module that lists the adapter's features. The
	// suite compares it with its results. "": no comparison.
	Report string

	// Lease is the shortest lease that the suite lets end. It must be much longer than a call takes.
	// Default: 400 ms.
	Lease time.Duration

	// Slack is the tolerance for late events, and how long the suite waits for an event that must not
	// happen. Default: 500 ms.
	Slack time.Duration

	// Patience limits each wait for an event that must happen. Default: 1 min.
	Patience time.Duration
}

// Promises lists the optional features of an adapter. Cases for a feature that is not promised are
// skipped. An optional interface without its promise fails the suite, so that each feature is
// tested.
type Promises struct {
	List    bool // schedule.Lister
	Pause   bool // schedule.Pauser
	Watch   bool // schedule.Watcher
	Repair  bool // schedule.Repairer
	Change  bool // schedule.Changer
	Durable bool // confirmed changes survive Restart
	// schedule.TxAdder
	Transactions bool
}
