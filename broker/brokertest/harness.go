package brokertest

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// Harness is one new namespace on a server: no queue of another Harness is visible in it. The
// function given to [Run] returns one for each case and registers its clean-up with t.Cleanup.
type Harness struct {
	// Open connects to the namespace like another process. The suite closes these Brokers before the
	// case ends.
	Open func(t testing.TB) broker.Broker

	// Sever cuts the connections of b like a network failure, without a message to either end, and
	// lets b reconnect at once. nil: the cases that need it are skipped by name.
	Sever func(t testing.TB, b broker.Broker)

	// Restart stops the server and starts it again with its data. It returns when the server accepts
	// connections. nil: the cases that need it are skipped by name.
	Restart func(t testing.TB)

	// Down makes the server unreachable for every Broker of this Harness, including open ones, until
	// up is called. It returns when the server is unreachable. nil: the cases that need it are skipped
	// by name.
	Down func(t testing.TB) (up func())

	// Isolate cuts the network of b until back is called. For other Brokers, which keep theirs, its
	// process looks dead. nil: the cases that need it are skipped by name.
	Isolate func(t testing.TB, b broker.Broker) (back func())

	// Bounded opens a Broker like Open, which keeps at most most dead letters of a queue, each for at
	// most age. 0: the adapter's default. nil: the cases that need it are skipped by name.
	Bounded func(t testing.TB, most int, age time.Duration) broker.Broker

	// Begin begins a transaction on the database of the Brokers, by a connection that belongs to none
	// of them. Needed with the promise Transactions.
	Begin func(t testing.TB) Transaction

	// Foreign begins transactions that the Brokers must refuse, by the names of their databases.
	Foreign map[string]func(t testing.TB) Transaction

	// Prefix begins the name of every queue and node that the suite uses, for servers where a
	// namespace is only such a prefix.
	Prefix string

	// Secret is the password in the configuration of Open. No error may contain it. "": the server
	// needs none.
	Secret string

	// Promises are the adapter's promises.
	Promises Promises

	// FairStarts is the number of deliveries of the case that measures the shares of weights. Default:
	// 10,000. A server that takes milliseconds for a delivery needs fewer.
	FairStarts int

	// Keys returns the number of keys that the broker keeps for the turns of a queue, "" included.
	// After a drain it must become 0. Needed with the promise Fair.
	Keys func(t testing.TB, b broker.Broker, queue string) int

	// Report is the file below docs/capabilities of this module that says which features the adapter
	// has, such as ../../docs/capabilities/broker-memory.json. A whole run that passes is compared
	// with it, or writes it if SWARMIJI_UPDATE is 1. The first Harness names it. "": no comparison.
	Report string

	// Slack limits the lateness of a message or of the end of a call. Default: 5 s, for busy machines.
	Slack time.Duration

	// Quiet is the time after which the suite concludes that nothing arrives. Default: 500 ms.
	Quiet time.Duration

	// Patience limits every wait for something that must happen. Default: 1 min.
	Patience time.Duration

	// Leases is the time after which a consumer that does not renew its lease loses its messages. The
	// suite requests this lease in SubscribeOptions and expects that a held delivery outlives it. 0:
	// the broker has no leases.
	Leases time.Duration

	// ModelChecks and ModelSteps limit the model test: the number of random histories, and the
	// approximate number of steps of each. Default: 20 and 20. A server that takes milliseconds per
	// step needs less. The histories are never more than -rapid.checks.
	ModelChecks, ModelSteps int
}

// Promises are an adapter's promises beyond the rules for every adapter. The cases of a promise
// that is not made are skipped by name. The zero value promises nothing. If the Broker has an
// optional interface without the promise, the suite fails, so that every feature is tested.
type Promises struct {
	Durable    bool // a confirmed message survives Restart
	ExactCount bool // Deliveries is exact after the first delivery too
	Dedupe     bool // a repeated (ID, Generation) while the first is queued is one message
	// messages of one publisher and priority reach a single consumer in order, without a fault
	Order       bool
	Priorities  bool // the levels of Declare have an effect
	Fair        bool // Queue.Fair: exact turns over the keys; Order too
	Lanes       bool // Queue.Fair: approximate turns, by lanes that the publisher chooses
	Bounds      bool // SubscribeOptions.Bounds and broker.Bounder; Fair and Inspect too
	Floor       bool // SubscribeOptions.Floor; Priorities too
	Delays      bool // broker.Delayer, and delays in PublishBatch and Retry
	Batch       bool // broker.BatchPublisher
	Retry       bool // broker.Retrier: atomic
	SyncAck     bool // broker.SyncAcker
	Resize      bool // broker.Resizer
	Inspect     bool // broker.Inspector; a Stats field of -1 is accepted
	DeadLetters bool // broker.DeadLetterer
	Oldest      bool // Stats.Oldest is set while messages wait; needs Inspect
	Find        bool // broker.Finder
	Queues      bool // broker.QueueLister
	List        bool // broker.Lister
	ListKeys    bool // broker.KeyLister; Fair too
	DeadByID    bool // broker.DeadFinder; needs DeadLetters
	Watch       bool // broker.Watcher
	Witness     bool // broker.Witness
	// broker.TxPublisher
	Transactions bool

	// The next fields weaken the rules: such an adapter cannot do what most can. The cases that need
	// it are skipped by name or check less.

	OpenQueues bool // every valid name is a queue: ErrNoQueue is never returned
	Uncounted  bool // Deliveries is always (1, false): the broker does not count deliveries
	Reasonless bool // a dead letter has neither reason, stack, attempts nor time
	Outlives   bool // a delivery outlives its connection and a restart: it ends with its lease
	// Forgets: a killed server may forget deliveries, and deliver messages once more that were
	// acknowledged after its restart.
	Forgets bool

	// MaxBody is the largest body in bytes that the adapter accepts in the harness's configuration.
	// One byte more must be ErrTooLarge. 0: the suite checks no limit, only that 5 MB are accepted.
	MaxBody int
}
