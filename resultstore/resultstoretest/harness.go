package resultstoretest

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/resultstore"
)

// Harness is one fresh namespace on a server: no record of another Harness is seen in it. The function given to [Run]
// makes one for each case; it registers its own clean-up with t.Cleanup.
type Harness struct {
	// Open connects to the namespace as another process would. The suite closes what it opened before the case ends.
	Open func(t testing.TB) resultstore.ResultStore

	// Sever cuts the connections of s as a network would, without a word to either end, and lets s reconnect at once. Nil:
	// the cases that need it are skipped by name.
	Sever func(t testing.TB, s resultstore.ResultStore)

	// Restart stops the server and starts it again with its data; it returns when the server takes connections. Nil: the
	// cases that need it are skipped by name.
	Restart func(t testing.TB)

	// Down makes the server unreachable for every store of this Harness, those that are open included, until up is called.
	// It returns when it is unreachable. Nil: the cases that need it are skipped by name.
	Down func(t testing.TB) (up func())

	// Lose removes the place where records wait for a submitter's node, as an administrator or a broken server would. It returns
	// when it is gone. Every reply queue has it.
	Lose func(t testing.TB, node string)

	// Prefix begins every task's and node's id that the suite uses, for servers where a namespace is no more than that. At
	// most 32 bytes of visible ASCII.
	Prefix string

	// Secret is the password in the configuration of Open. No error may contain it. Empty: there is none.
	Secret string

	// Promises are what the adapter says of itself.
	Promises Promises

	// Report is the file below docs/capabilities of this module that says what the adapter can do, such as
	// ../../docs/capabilities/results-memory.json: a whole run that passes is compared with it, or writes it if SWARMIJI_UPDATE
	// is 1. It is named after the first Harness. "": nothing is compared.
	Report string

	// Slack is how late a notification may be. Zero: 5 s, for busy machines.
	Slack time.Duration

	// Quiet is how long the suite looks before it believes that nothing comes. Zero: 500 ms.
	Quiet time.Duration

	// Unread is how many records are saved for a submitter that does not read them. Zero: 2,000, more than what waits on the way
	// to one; an adapter without such a place takes fewer, if each costs it a write to the disk.
	Unread int

	// Patience bounds every wait for something that must happen. Zero: 30 s.
	Patience time.Duration
}

// Promises are what an adapter promises beyond what every adapter must do. A promise that is not made skips its cases by
// name. An interface that the store offers without the promise fails the suite, so that no capability goes untested.
type Promises struct {
	RepliesOnly bool // resultstore.Replier: records are had by notification alone; what is about kept records is skipped
	Notify      bool // resultstore.Notifier, or the stream of a resultstore.Replier
	Gather      bool // resultstore.Gatherer
	Claim       bool // resultstore.Claimer
	Durable     bool // a saved record survives Restart; with RepliesOnly: one that was not received yet

	// TTL is the shortest Record.TTL that the adapter honours to about Slack. 0: it does not expire records by theirs.
	TTL time.Duration

	// MaxResult is the largest Result in bytes that the adapter takes as the harness configured it; one byte more is
	// ErrTooLarge. 0: no limit is tried, only that 1 MiB goes through.
	MaxResult int
}
