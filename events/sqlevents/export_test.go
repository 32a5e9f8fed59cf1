package sqlevents

import (
	"context"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// Renew writes the row of b among the listeners, like its reading goroutine does at intervals.
func Renew(ctx context.Context, b *Bus) error { return b.register(ctx) }

// SweepBatch is the largest number of rows that one statement deletes.
const SweepBatch = sweepBatch

// AddIn writes a message for listeners in a transaction on PostgreSQL.
func AddIn(ctx context.Context, tx *sqlconn.Tx, b *Bus, message []byte) error {
	_, err := tx.Exec(ctx, b.text.add, b.cfg.Namespace, 1, 0, liveTime.Microseconds(), message, lockKey(b.cfg.Namespace))
	return err
}

// Linger is the time for which a bus stays registered without a listener.
const Linger = linger

// Asked reports whether b has asked which events are wanted.
func Asked(b *Bus) bool { return b.demand.Load() != nil }
