package resultstoretest

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/resultstore"
)

// Harness is one fresh namespace on a server, without the records of any other Harness. The
// function given to [Run] makes one for each case and registers its clean-up with t.Cleanup.
type Harness struct {
	// Open connects to the namespace like another process. The suite closes the store before the case
	// ends.
	Open func(t testing.TB) resultstore.ResultStore

	// Sever cuts the connections of s like a network failure: neither end is told, and s may reconnect
	// at once. Nil: its cases are skipped by name.
	Sever func(t testing.TB, s resultstore.ResultStore)

	// Restart stops the server and starts it again with its data. It returns when the server accepts
	// connections. Nil: its cases are skipped by name.
	Restart func(t testing.TB)

	// Down makes the server unreachable for every open and future store of this Harness until up is
	// called. It returns when the server is unreachable. Nil: its cases are skipped by name.
	Down func(t testing.TB) (up func())

	// Lose removes the reply queue of node like an administrator or a broken server would, and returns
	// when it is gone. Required with RepliesOnly.
	Lose func(t testing.TB, node string)

	// Begin begins a transaction on the database of the stores, by a connection that belongs to none
	// of them. Needed with the promise Transactions.
	Begin func(t testing.TB) Transaction

	// Foreign begins transactions that the stores must refuse, by the names of their databases.
	Foreign map[string]func(t testing.TB) Transaction

	// Prefix begins the id of every task and node in the suite, for servers where a namespace is only
	// a prefix. At most 32 bytes of visible ASCII.
	Prefix string

	// Secret is the password that Open uses. No error may contain it. "": no password.
	Secret string

	// Promises lists the capabilities of the adapter.
	Promises Promises

	// Report is a file below docs/capabilities of this module, such as
	// ../../docs/capabilities/results-memory.json. A complete run that passes is compared with it, or
	// writes it if SWARMIJI_UPDATE is 1. Only the Report of the first Harness counts. "": no report.
	Report string

	// Slack is the longest accepted delay of a notification. Default: 5s, for busy machines.
	Slack time.Duration

	// Quiet is the time without a record after which the suite concludes that none arrives. Default:
	// 500ms.
	Quiet time.Duration

	// Unread is the number of records saved for a submitter that does not read. Default: 2,000, more
	// than the buffers on the way hold. An adapter without such buffers may use fewer if each record
	// costs a disk write.
	Unread int

	// Patience is the longest wait for something that must happen. Default: 1 min.
	Patience time.Duration
}

// Promises lists the optional capabilities of an adapter. The cases of a missing promise are
// skipped by name. The suite fails if the store offers an interface without its promise, so that no
// capability is untested.
type Promises struct {
	// resultstore.Replier: records arrive only by notification, and cases about stored records are
	// skipped
	RepliesOnly bool
	Notify      bool // resultstore.Notifier, or the stream of a resultstore.Replier
	Gather      bool // resultstore.Gatherer
	Claim       bool // resultstore.Claimer
	Swap        bool // resultstore.Swapper
	Batches     bool // resultstore.BatchSaver
	Checkpoints bool // resultstore.Checkpointer
	// resultstore.TxSaver, and resultstore.TxGatherer with Gather
	Transactions bool
	// a saved record survives Restart; with RepliesOnly: a record that was not received yet
	Durable bool

	// TTL is the shortest Record.TTL that the adapter honours to within Slack. 0: the adapter ignores
	// Record.TTL.
	TTL time.Duration

	// MaxResult is the largest Result in bytes that the adapter accepts with the settings of the
	// harness. One more byte is ErrTooLarge. 0: the suite only tests that 1 MiB is accepted.
	MaxResult int
}
