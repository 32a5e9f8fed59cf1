package natsbroker

import (
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// ports holds the sentinels that an error may wrap already.
var ports = [...]error{
	broker.ErrClosed, broker.ErrUnavailable, broker.ErrIndeterminate, broker.ErrBlocked, broker.ErrNoQueue, broker.ErrTooLarge,
	broker.ErrSettled, broker.ErrLeaseLost, broker.ErrMalformed, broker.ErrUnsupported, broker.ErrAccess, broker.ErrTooMany, broker.ErrNotFound,
}

// wrap returns err with the operation what and the queue in its text. If err wraps no sentinel of
// package broker yet, it adds the one that classOf returns, if any. It returns nil for a nil err.
func wrap(err error, what, queue string) error {
	if err == nil {
		return nil
	}
	for _, class := range ports {
		if errors.Is(err, class) {
			return fmt.Errorf("nats %s %q: %w", what, queue, err)
		}
	}
	if class := classOf(err); class != nil {
		return fmt.Errorf("nats %s %q: %w: %w", what, queue, class, err)
	}
	return fmt.Errorf("nats %s %q: %w", what, queue, err)
}

// classOf returns the sentinel of package broker that fits err, an error of the connection, or
// nil. A missing stream or consumer counts as ErrUnavailable.
func classOf(err error) error {
	switch {
	case errors.Is(err, natsconn.ErrIndeterminate):
		return broker.ErrIndeterminate
	case errors.Is(err, natsconn.ErrAccess):
		return broker.ErrAccess
	case errors.Is(err, natsconn.ErrTooMany):
		return broker.ErrTooMany
	case errors.Is(err, natsconn.ErrBlocked):
		return broker.ErrBlocked
	case errors.Is(err, natsconn.ErrTooLarge):
		return broker.ErrTooLarge
	case errors.Is(err, natsconn.ErrClosed):
		return broker.ErrClosed
	case errors.Is(err, natsconn.ErrUnavailable), errors.Is(err, natsconn.ErrNoStream), errors.Is(err, natsconn.ErrNoConsumer):
		return broker.ErrUnavailable
	case errors.Is(err, natsconn.ErrNotFound):
		return broker.ErrNotFound
	default:
		return nil
	}
}
