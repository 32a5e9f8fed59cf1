package amqpconn

import (
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Classes of the errors of this package. Compare with [errors.Is]. No error holds a password or a
// URL.
var (
	// ErrClosed reports that the Conn or Publisher was closed.
	ErrClosed = errors.New("amqp connection closed")
	// ErrUnavailable reports that no connection was usable until ctx ended. Nothing was sent.
	ErrUnavailable = errors.New("no amqp connection")
	// ErrAccess reports that the server refused the credentials, the virtual host or the operation.
	// The Conn keeps trying, so that it recovers when access is granted.
	ErrAccess = errors.New("amqp access refused")
	// ErrIndeterminate reports that ctx or the connection ended before the answer arrived. The message
	// or request may have been sent.
	ErrIndeterminate = errors.New("amqp request without an answer")
	// ErrBlocked reports that the server had an alarm (memory, disk) until ctx ended. If the error is
	// also ErrIndeterminate, the message was sent before the alarm was known. Otherwise nothing was
	// sent.
	ErrBlocked = errors.New("amqp server takes no messages")
	// ErrRefused reports that the server did not accept the message, for example because its queue is
	// full.
	ErrRefused = errors.New("amqp publish refused")
	// ErrUnroutable reports that the server returned the message because no queue is bound to its
	// exchange and key.
	ErrUnroutable = errors.New("amqp message unroutable")
	// ErrMalformed reports that the message cannot be encoded as AMQP.
	ErrMalformed = errors.New("malformed amqp message")
)

// IsAccess reports whether the server refused an operation of a channel for lack of permission.
func IsAccess(err error) bool { return hasCode(err, amqp.AccessRefused) }

// IsNotFound reports whether the server answered that the queue or exchange does not exist.
func IsNotFound(err error) bool { return hasCode(err, amqp.NotFound) && !IsNodeDown(err) }

// IsNodeDown reports whether the server answered that a queue exists on a node that is down or
// still starting. Only the text of the answer tells this from a missing queue.
func IsNodeDown(err error) bool {
	e, ok := errors.AsType[*amqp.Error](err)
	return ok && e.Code == amqp.NotFound &&
		(strings.Contains(e.Reason, "home node") || strings.Contains(e.Reason, "process is stopped"))
}

// IsPrecondition reports whether the server answered 406. The reasons are a declaration that
// differs from the existing queue, an unknown delivery tag, or a delivery unacknowledged for longer
// than consumer_timeout.
func IsPrecondition(err error) bool { return hasCode(err, amqp.PreconditionFailed) }

// IsChannelError reports whether the server refused an operation by closing the channel, and not
// the connection.
func IsChannelError(err error) bool {
	e, ok := errors.AsType[*amqp.Error](err)
	return ok && e.Server && e.Recover
}

// IsBeingDeclared reports whether err is an answer of RabbitMQ (3.10) to a connection that uses a
// stream while another connection declares it. The server then returns or refuses the message
// ([ErrUnroutable], [ErrRefused]). Or it says that the queue exists and closes the connection with
// an internal or resource error. These errors may also have other causes.
func IsBeingDeclared(err error) bool {
	if errors.Is(err, ErrUnroutable) || errors.Is(err, ErrRefused) {
		return true
	}
	e, ok := errors.AsType[*amqp.Error](err)
	return ok && e.Server && (e.Code == amqp.InternalError || e.Code == amqp.ResourceError)
}

// hasCode reports whether err wraps an AMQP error with the reply code code.
func hasCode(err error, code int) bool {
	e, ok := errors.AsType[*amqp.Error](err)
	return ok && e.Code == code
}

// channelError wraps an error of a channel's method with ErrAccess if the server refused
// permission. It returns other errors unchanged.
func channelError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrAccess), errors.Is(err, ErrUnavailable), errors.Is(err, ErrClosed):
		return err
	case IsAccess(err):
		return fmt.Errorf("%w: %w", ErrAccess, err)
	default:
		return err
	}
}
