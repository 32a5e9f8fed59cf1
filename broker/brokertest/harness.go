package brokertest

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// Harness is one fresh namespace on a server: no queue of another Harness is seen in it. The function given to [Run] makes
// one for each case; it registers its own clean-up with t.Cleanup.
type Harness struct {
	// Open connects to the namespace as another process would. The suite closes what it opened before the case ends.
	Open func(t testing.TB) broker.Broker

	// Sever cuts the connections of b as a network would, without a word to either end, and lets b reconnect at once. Nil:
	// the cases that need it are skipped by name.
	Sever func(t testing.TB, b broker.Broker)

	// Restart stops the server and starts it again with its data; it returns when the server takes connections. Nil: the
	// cases that need it are skipped by name.
	Restart func(t testing.TB)

	// Down makes the server unreachable for every Broker of this Harness, those that are open included, until up is called.
	// It returns when it is unreachable. Nil: the cases that need it are skipped by name.
	Down func(t testing.TB) (up func())

	// Isolate takes the network from b until back is called: to other Brokers, which keep theirs, its
	// process looks dead. Nil: the cases that need it are skipped by name.
	Isolate func(t testing.TB, b broker.Broker) (back func())

	// Bounded is Open of a Broker that keeps so many dead letters of a queue, each for so long; 0:
	// the adapter's default. Nil: the cases that need it are skipped by name.
	Bounded func(t testing.TB, most int, age time.Duration) broker.Broker

	// Prefix begins the name of every queue and node that the suite uses, for servers where a namespace is no more than that.
	Prefix string

	// Secret is the password in the configuration of Open. No error may contain it. Empty: there is none.
	Secret string

	// Promises are what the adapter says of itself.
	Promises Promises

	// Report is the file below docs/capabilities of this module that says what the adapter can do, such as
	// ../../docs/capabilities/broker-memory.json: a whole run that passes is compared with it, or writes it if SWARMIJI_UPDATE
	// is 1. It is named after the first Harness. "": nothing is compared.
	Report string

	// Slack is how late a message or the end of a call may be. Zero: 5 s, for busy machines.
	Slack time.Duration

	// Quiet is how long the suite looks before it believes that nothing comes. Zero: 500 ms.
	Quiet time.Duration

	// Patience bounds every wait for something that must happen. Zero: 30 s.
	Patience time.Duration

	// Leases is how long a consumer that gave no sign of life keeps its messages. Zero: there are no leases. The suite
	// asks for this lease in SubscribeOptions and expects that a held delivery outlives it.
	Leases time.Duration

	// ModelChecks and ModelSteps bound the model test: how many random histories, of about how many steps each. Zero: 20
	// and 20; a server that takes milliseconds per step wants few. There are never more histories than -rapid.checks says.
	ModelChecks, ModelSteps int
}

// Promises are what an adapter promises beyond what every adapter must do. A promise that is not made skips its cases by
// name. The zero value promises nothing. An interface that the Broker offers without the promise fails the suite, so that
// no capability goes untested.
type Promises struct {
	Durable     bool // a confirmed message survives Restart
	ExactCount  bool // Deliveries is exact beyond the first
	Dedupe      bool // a repeated (ID, Generation) while the first is queued is one message
	Order       bool // one publisher's messages of one priority reach a single consumer in their order, without a fault
	Priorities  bool // the levels of Declare are honoured
	Delays      bool // broker.Delayer, and delays in PublishBatch and Retry
	Batch       bool // broker.BatchPublisher
	Retry       bool // broker.Retrier: atomic
	SyncAck     bool // broker.SyncAcker
	Resize      bool // broker.Resizer
	Inspect     bool // broker.Inspector; a Stats field of -1 is accepted
	DeadLetters bool // broker.DeadLetterer
	Find        bool // broker.Finder
	Watch       bool // broker.Watcher
	Witness     bool // broker.Witness

	// What follows takes something back: such an adapter cannot do what most can. The cases that need it are skipped by
	// name or ask for less.

	OpenQueues bool // every valid name is a queue: ErrNoQueue never happens
	Uncounted  bool // Deliveries is always (1, false): the broker does not know what was handed out before
	Reasonless bool // a dead letter has neither reason, stack and attempts nor time
	Outlives   bool // a delivery outlives its connection and a restart: it ends with its lease
	Forgets    bool // a server that was killed may forget what it handed out, and hand out once more what was acknowledged after its restart

	// MaxBody is the largest body in bytes that the adapter takes as the harness configured it; one byte more is
	// ErrTooLarge. 0: no limit is tried, only that 5 MB go through.
	MaxBody int
}
