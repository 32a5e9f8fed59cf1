package tracing

import "go.opentelemetry.io/otel/attribute"

// Attributes of OpenTelemetry's conventions for messaging. The conventions are experimental, so
// only this file uses them. A test compares them with the package of the conventions.
const (
	keySystem        = attribute.Key("messaging.system")
	keyOperationName = attribute.Key("messaging.operation.name")
	keyOperationType = attribute.Key("messaging.operation.type")
	keyDestination   = attribute.Key("messaging.destination.name")
	keyMessageID     = attribute.Key("messaging.message.id")
	keyErrorType     = attribute.Key("error.type")
)

// Operation types of the conventions.
const (
	typeSend    = "send"
	typeProcess = "process"
)

// Operation names of this package. The name of a span is the operation name and the task's name.
// The conventions use the queue's name instead, but the queue is an attribute already.
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
	// succeeded, failed, retry, snooze or awaiting
	keyOutcome = attribute.Key("swarmiji.task.outcome")
	keyNode    = attribute.Key("swarmiji.node_id")
)

// Values of keyOutcome.
const (
	outcomeSucceeded = "succeeded"
	outcomeFailed    = "failed"
	outcomeRetry     = "retry"
	outcomeSnooze    = "snooze"
	outcomeAwaiting  = "awaiting"
)

// scope is the instrumentation scope of the spans.
const scope = "github.com/swarmiji/swarmiji/middleware/tracing"

// defaultSystem is the messaging system if Config.System is "".
const defaultSystem = "swarmiji"
