package amqpconn

import (
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
)

// BrokerError returns err with the operation what and the queue in its text, and with the sentinel
// of package broker that fits err. It returns nil for a nil err.
func BrokerError(err error, what, queue string) error {
	if err == nil {
		return nil
	}
	if class := classOf(err); class != nil {
		return fmt.Errorf("amqp %s %q: %w: %w", what, queue, class, err)
	}
	return fmt.Errorf("amqp %s %q: %w", what, queue, err)
}

// classOf returns the sentinel of package broker that fits err, an error of the connection. If
// the outcome is unknown because of an alarm or a refusal, it returns ErrIndeterminate together
// with ErrBlocked or ErrAccess. It returns nil for any other error, which may wrap a sentinel
// already.
func classOf(err error) error {
	switch {
	case errors.Is(err, ErrIndeterminate):
		switch {
		case errors.Is(err, ErrBlocked): // sent just before the server reported its alarm
			return indeterminateError{broker.ErrBlocked}
		// when the server refuses one message it leaves all others in progress unanswered
		case errors.Is(err, ErrAccess):
			return indeterminateError{broker.ErrAccess}
		}
		return broker.ErrIndeterminate
	case errors.Is(err, ErrBlocked), errors.Is(err, ErrRefused):
		return broker.ErrBlocked
	case errors.Is(err, ErrUnroutable):
		return broker.ErrNoQueue
	case errors.Is(err, ErrMalformed):
		return broker.ErrMalformed
	case errors.Is(err, ErrAccess), IsAccess(err):
		return broker.ErrAccess
	// before ErrClosed, which is final: a caller that repeats finds out which it is
	case errors.Is(err, ErrUnavailable), IsNodeDown(err):
		return broker.ErrUnavailable
	case errors.Is(err, ErrClosed):
		return broker.ErrClosed
	case IsNotFound(err):
		return broker.ErrNoQueue
	default:
		return nil
	}
}

// indeterminateError is broker.ErrIndeterminate together with the class of its cause.
type indeterminateError struct{ cause error }

// Error returns the texts of both errors.
func (e indeterminateError) Error() string {
	return broker.ErrIndeterminate.Error() + ", " + e.cause.Error()
}

// Unwrap returns broker.ErrIndeterminate and the cause.
func (e indeterminateError) Unwrap() []error {
	return []error{broker.ErrIndeterminate, e.cause}
}
