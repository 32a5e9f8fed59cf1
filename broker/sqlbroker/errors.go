package sqlbroker

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// wrap returns err with the operation what and the queue in its text, and with the port's sentinel
// that fits err. It returns nil for a nil err.
func wrap(err error, what, queue string) error {
	if err == nil {
		return nil
	}
	if class := classOf(err); class != nil {
		return fmt.Errorf("sql %s %.128q: %w: %w", what, queue, class, err)
	}
	return fmt.Errorf("sql %s %.128q: %w", what, queue, err)
}

// classOf returns the sentinel of package broker that fits err, an error of the connection. It
// returns nil for any other error, which may wrap a sentinel already.
func classOf(err error) error {
	switch sqlconn.Class(err) {
	case sqlconn.ErrIndeterminate: //nolint:errorlint // Class returns the sentinel itself
		return broker.ErrIndeterminate
	case sqlconn.ErrUnavailable, sqlconn.ErrConflict:
		return broker.ErrUnavailable
	case sqlconn.ErrFull:
		return broker.ErrBlocked
	case sqlconn.ErrAccess, sqlconn.ErrNewerSchema, sqlconn.ErrCorrupt, sqlconn.ErrRefused:
		return broker.ErrAccess
	case sqlconn.ErrClosed:
		return broker.ErrClosed
	case sqlconn.ErrForeign:
		return broker.ErrUnsupported
	}
	return nil
}

// errClosed is the error of operations that Close or an earlier Close ended.
var errClosed = fmt.Errorf("%w: the broker is closed", broker.ErrClosed)

// errNotSent returns the error of a message that was not sent before ctx ended.
func errNotSent(ctx context.Context) error {
	return fmt.Errorf("%w: %w", sqlconn.ErrUnavailable, ctx.Err())
}
