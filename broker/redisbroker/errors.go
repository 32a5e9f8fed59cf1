package redisbroker

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/redisconn"
)

// ErrNotReplicated means that the server has executed the operation, but fewer than
// Config.WaitReplicas replicas confirmed it within WaitTimeout. A failover now may undo it. It
// comes with [broker.ErrIndeterminate]. It is safe to publish the same message again.
var ErrNotReplicated = errors.New("redis: too few replicas confirmed the write")

// wrap returns err with the operation what and the queue in its text, and with the port's sentinel
// that fits err. It returns nil for a nil err.
func wrap(err error, what, queue string) error {
	if err == nil {
		return nil
	}
	if class := classOf(err); class != nil {
		return fmt.Errorf("redis %s %.128q: %w: %w", what, queue, class, err)
	}
	return fmt.Errorf("redis %s %.128q: %w", what, queue, err)
}

// classOf returns the sentinel of package broker that fits err, an error of the connection. It
// returns nil for any other error, which may wrap a sentinel already.
func classOf(err error) error {
	for _, c := range []struct{ class, port error }{
		{redisconn.ErrIndeterminate, broker.ErrIndeterminate},
		{redisconn.ErrBlocked, broker.ErrBlocked},
		{redisconn.ErrAccess, broker.ErrAccess},
		{redisconn.ErrClosed, broker.ErrClosed},
		{redisconn.ErrUnavailable, broker.ErrUnavailable},
	} {
		if errors.Is(redisconn.Class(err), c.class) {
			return c.port
		}
	}
	return nil
}

// errClosed is the error of operations that Close or an earlier Close ended.
var errClosed = fmt.Errorf("%w: the broker is closed", broker.ErrClosed)

// errNotSent returns the error of a message that was not sent before ctx ended. last is the cause,
// or nil if it is not known.
func errNotSent(ctx context.Context, last error) error {
	if last == nil {
		return fmt.Errorf("%w: %w", redisconn.ErrUnavailable, ctx.Err())
	}
	return fmt.Errorf("%w (%w)", last, ctx.Err())
}

// errUnknown returns the error of a message whose round trip was in progress when ctx ended: it may
// have been executed.
func errUnknown(ctx context.Context) error {
	return fmt.Errorf("%w: %w", redisconn.ErrIndeterminate, ctx.Err())
}
