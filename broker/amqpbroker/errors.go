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
		switch {
		case errors.Is(err, amqpconn.ErrBlocked): // sent just before the server told of its alarm
			return indeterminateError{broker.ErrBlocked}
		case errors.Is(err, amqpconn.ErrAccess): // the refusal of one message leaves all that were under way unanswered
			return indeterminateError{broker.ErrAccess}
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
	case errors.Is(err, amqpconn.ErrUnavailable), amqpconn.IsNodeDown(err): // before ErrClosed, which is final: who repeats will find out
		return broker.ErrUnavailable
	case errors.Is(err, amqpconn.ErrClosed):
		return broker.ErrClosed
	case amqpconn.IsNotFound(err):
		return broker.ErrNoQueue
	default:
		return nil
	}
}

// indeterminateError is broker.ErrIndeterminate with the class of its cause.
type indeterminateError struct{ cause error }

func (e indeterminateError) Error() string {
	return broker.ErrIndeterminate.Error() + ", " + e.cause.Error()
}

func (e indeterminateError) Unwrap() []error {
	return []error{broker.ErrIndeterminate, e.cause}
}
