package amqpbroker

import (
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// wrap says what was done and puts the port's class beside the connection's error.
func wrap(err error, what, queue string) error {
	if err == nil {
		return nil
	}
	if class := classOf(err); class != nil {
		return fmt.Errorf("amqp %s %q: %w: %w", what, queue, class, err)
	}
	return fmt.Errorf("amqp %s %q: %w", what, queue, err)
}

// classOf returns the port's sentinel, nil if err has one already or none fits.
func classOf(err error) error {
	switch {
	case errors.Is(err, amqpconn.ErrIndeterminate):
		if errors.Is(err, amqpconn.ErrBlocked) {
			return indeterminateAndBlockedError{}
		}
		return broker.ErrIndeterminate
	case errors.Is(err, amqpconn.ErrBlocked), errors.Is(err, amqpconn.ErrRefused):
		return broker.ErrBlocked
	case errors.Is(err, amqpconn.ErrUnroutable):
		return broker.ErrNoQueue
	case errors.Is(err, amqpconn.ErrMalformed):
		return broker.ErrMalformed
	case errors.Is(err, amqpconn.ErrAccess), amqpconn.IsAccess(err):
		return broker.ErrAccess
	case errors.Is(err, amqpconn.ErrClosed):
		return broker.ErrClosed
	case errors.Is(err, amqpconn.ErrUnavailable):
		return broker.ErrUnavailable
	case amqpconn.IsNotFound(err):
		return broker.ErrNoQueue
	default:
		return nil
	}
}

// indeterminateAndBlockedError is the class of a message that was sent just before the server told of its alarm.
type indeterminateAndBlockedError struct{}

func (indeterminateAndBlockedError) Error() string {
	return broker.ErrIndeterminate.Error() + ", " + broker.ErrBlocked.Error()
}

func (indeterminateAndBlockedError) Unwrap() []error {
	return []error{broker.ErrIndeterminate, broker.ErrBlocked}
}
