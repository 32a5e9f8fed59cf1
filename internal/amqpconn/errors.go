package amqpconn

import (
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The classes of this package's errors. Compare with [errors.Is]. No error of this package holds a password or a URL.
var (
	// ErrClosed: the Conn or Publisher was closed.
	ErrClosed = errors.New("amqp connection closed")
	// ErrUnavailable: there was no usable connection until ctx ended; nothing was sent.
	ErrUnavailable = errors.New("no amqp connection")
	// ErrAccess: the server refused the credentials, the virtual host or the operation. The Conn goes on trying, so that it
	// recovers when that is mended.
	ErrAccess = errors.New("amqp access refused")
	// ErrIndeterminate: the message or request may have been sent, and ctx or the connection ended before the answer came.
	ErrIndeterminate = errors.New("amqp request without an answer")
	// ErrBlocked: the server had an alarm (memory, disk) until ctx ended. With ErrIndeterminate beside it the message had
	// been sent before the alarm was known; else nothing was sent.
	ErrBlocked = errors.New("amqp server takes no messages")
	// ErrRefused: the server answered that it did not take the message, for instance since its queue is full.
	ErrRefused = errors.New("amqp publish refused")
	// ErrUnroutable: the server returned the message: no queue is bound where it was published to.
	ErrUnroutable = errors.New("amqp message unroutable")
	// ErrMalformed: the message cannot be written as AMQP.
	ErrMalformed = errors.New("malformed amqp message")
)

// IsAccess reports whether the server refused a channel's operation for lack of permission.
func IsAccess(err error) bool { return hasCode(err, amqp.AccessRefused) }

// IsNotFound reports whether the server answered that there is no such queue or exchange.
func IsNotFound(err error) bool { return hasCode(err, amqp.NotFound) && !IsNodeDown(err) }

// IsNodeDown reports whether the server answered that a queue is there, on a node that is down or has not started all of its
// queues yet. Only the text of the answer tells this from a queue that is not there.
func IsNodeDown(err error) bool {
	e, ok := errors.AsType[*amqp.Error](err)
	return ok && e.Code == amqp.NotFound &&
		(strings.Contains(e.Reason, "home node") || strings.Contains(e.Reason, "process is stopped"))
}

// IsPrecondition reports whether the server answered 406: a declaration that differs from what exists, an unknown delivery
// tag, or a delivery that was held for longer than consumer_timeout.
func IsPrecondition(err error) bool { return hasCode(err, amqp.PreconditionFailed) }

// IsChannelError reports whether the server closed a channel, and not the connection, to answer an operation that it
// refuses.
func IsChannelError(err error) bool {
	e, ok := errors.AsType[*amqp.Error](err)
	return ok && e.Server && e.Recover
}

// IsInTheMaking reports whether an error is what RabbitMQ (3.10) answers to those who use a stream while another connection
// makes it: it has told them that the queue exists, and then ends their connection.
func IsInTheMaking(err error) bool {
	if errors.Is(err, ErrUnroutable) || errors.Is(err, ErrRefused) {
		return true
	}
	e, ok := errors.AsType[*amqp.Error](err)
	return ok && e.Server && (e.Code == amqp.InternalError || e.Code == amqp.ResourceError)
}

func hasCode(err error, code int) bool {
	e, ok := errors.AsType[*amqp.Error](err)
	return ok && e.Code == code
}

// channelError puts the class beside an error that a channel's method returned.
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
