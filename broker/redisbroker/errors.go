package redisbroker

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/redisconn"
)

// ErrNotReplicated is the error of what the server has executed, while fewer replicas than Config.WaitReplicas said in time that
// they have it too: a failover now may undo it. It comes with [broker.ErrIndeterminate]; publishing the same again is safe.
var ErrNotReplicated = errors.New("redis: too few replicas have it")

// wrap says what was done and puts the port's class beside the connection's error.
func wrap(err error, what, queue string) error {
	if err == nil {
		return nil
	}
	if class := classOf(err); class != nil {
		return fmt.Errorf("redis %s %.128q: %w: %w", what, queue, class, err)
	}
	return fmt.Errorf("redis %s %.128q: %w", what, queue, err)
}

// classOf returns the port's sentinel, nil if err has one already or none fits.
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

// errClosed is the error of what Close found waiting.
var errClosed = fmt.Errorf("%w: the broker is closed", broker.ErrClosed)

// notSent is the error of a message that was not sent until ctx ended; last is why, if that is known.
func notSent(ctx context.Context, last error) error {
	if last == nil {
		return fmt.Errorf("%w: %w", redisconn.ErrUnavailable, ctx.Err())
	}
	return fmt.Errorf("%w (%w)", last, ctx.Err())
}

// unknown is the error of a message that was on its way when ctx ended.
func unknown(ctx context.Context) error {
	return fmt.Errorf("%w: %w", redisconn.ErrIndeterminate, ctx.Err())
}
