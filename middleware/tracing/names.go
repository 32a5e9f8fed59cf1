package tracing

import "go.opentelemetry.io/otel/attribute"

// Attributes of the conventions for messaging. These are still called experimental, so that this is the only file that knows
// them; a test compares them with the conventions' own package.
const (
	keySystem        = attribute.Key("messaging.system")
	keyOperationName = attribute.Key("messaging.operation.name")
	keyOperationType = attribute.Key("messaging.operation.type")
	keyDestination   = attribute.Key("messaging.destination.name")
	keyMessageID     = attribute.Key("messaging.message.id")
	keyErrorType     = attribute.Key("error.type")
)

// Types of operations, of the conventions.
const (
	typeSend    = "send"
	typeProcess = "process"
)

// Names of operations, of ours. A span is called by one and the name of its task. The conventions would have the queue's, but
// that is an attribute, and says little about what was done.
const (
	nameSend = "send"
	nameRun  = "run"
)

// Attributes that no convention has.
const (
	keyTask       = attribute.Key("swarmiji.task.name")
	keyAttempt    = attribute.Key("swarmiji.task.attempt")    // from 1
	keyDeliveries = attribute.Key("swarmiji.task.deliveries") // from 1
	keyRoot       = attribute.Key("swarmiji.task.root_id")
	keyParent     = attribute.Key("swarmiji.task.parent_id")
	keyOutcome    = attribute.Key("swarmiji.task.outcome") // succeeded, failed, retry, snooze or awaiting
	keyNode       = attribute.Key("swarmiji.node_id")
)

// Values of keyOutcome.
const (
	outcomeSucceeded = "succeeded"
	outcomeFailed    = "failed"
	outcomeRetry     = "retry"
	outcomeSnooze    = "snooze"
	outcomeAwaiting  = "awaiting"
)

// scope names this package as the maker of its spans.
const scope = "github.com/swarmiji/swarmiji/middleware/tracing"

// defaultSystem is the system where the Config names none.
const defaultSystem = "swarmiji"
