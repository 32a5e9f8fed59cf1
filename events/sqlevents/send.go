package sqlevents

import (
	"bytes"
	"context"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// liveTime limits how long a message waits for a listener that lost its connection.
const liveTime = 10 * time.Second

// send writes the events of a message that are kept or that a listener wants, and then sweeps if
// that is due. n is the number of events of the message. The batcher's goroutine calls it. It waits
// for the database. It repeats a statement only if the database certainly did not execute it, until
// ctx ends. After an error the events may have been written.
func (b *Bus) send(ctx context.Context, message []byte, n int) error {
	d, err := b.demanded(ctx)
	if err != nil {
		return err
	}
	live, wanted := message, n
	if !d.all {
		live, wanted = events.Select(message, n, d.wants)
	}
	kept, count := []byte(nil), 0
	if b.cfg.Retain.On() {
		kept, count = message, n
		if b.cfg.Retain.Types != nil {
			kept, count = events.Select(message, n, b.cfg.Retain.Keeps)
		}
	}
	switch {
	case wanted == 0 && count == 0:
		return nil
	case wanted == count && bytes.Equal(live, kept):
		err = b.add(ctx, 1, count, live)
	default:
		if wanted > 0 {
			err = b.add(ctx, 1, 0, live)
		}
		if err == nil && count > 0 {
			err = b.add(ctx, 0, count, kept)
		}
	}
	if err == nil {
		b.sweep(ctx, count)
	}
	return err
}

// add writes one row and notifies readers. live is 1 if subscriptions receive the row, else 0. kept
// is the number of its kept events. Only a row with kept events waits for the disk. It waits for
// the database and returns its errors.
func (b *Bus) add(ctx context.Context, live, kept int, body []byte) error {
	write, lifetime := b.conn.Relaxed, liveTime
	if kept > 0 {
		write, lifetime = b.conn.Single, max(b.cfg.Retain.Age, liveTime)
	}
	args := []any{b.cfg.Namespace, live, kept, lifetime.Microseconds(), body}
	if b.conn.Dialect() == sqlconn.Postgres {
		args = append(args, lockKey(b.cfg.Namespace))
	}
	return write(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		tx.Notify(b.topic)
		_, err := tx.Exec(ctx, b.text.add, args...)
		return err
	})
}
