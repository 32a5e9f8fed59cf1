package amqpbroker

import "github.com/swarmiji/swarmiji/internal/amqpconn"

// wrap returns err with the operation what and the queue in its text, and with the port's sentinel
// that fits err. It returns nil for a nil err.
func wrap(err error, what, queue string) error { return amqpconn.BrokerError(err, what, queue) }
