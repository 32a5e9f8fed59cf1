package sqlevents

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

const (
	// sweepEvery is the shortest interval of sweeps, unless more rows are left or the events beyond
	// Max are removed.
	sweepEvery = 5 * time.Second
	// sweepBatch is the largest number of rows that one statement deletes: on SQLite it delays other
	// writers.
	sweepBatch = 200
	// beyondPart is the part of Max that a bus writes before it removes the events beyond Max.
	beyondPart = 10
)

// sweeper holds the state of the sweeps of a bus. Only the batcher's goroutine uses it.
type sweeper struct {
	last    time.Time
	more    bool // the last sweep left rows
	written int  // kept events since the events beyond Max were removed
}

// sweep deletes expired messages and listeners of all namespaces, and kept messages beyond Max of
// this one. kept is the number of kept events that were written since the last call. It deletes a
// limited number of rows, and only when that is due. A failure is logged; the next sweep tries
// again. Only the batcher's goroutine calls it. It waits for the database.
func (b *Bus) sweep(ctx context.Context, kept int) {
	s := &b.sweeper
	s.written += kept
	beyond := b.cfg.Retain.On() && (s.more && s.written > 0 || s.written >= max(b.cfg.Retain.Max/beyondPart, 1))
	if !s.more && !beyond && time.Since(s.last) < sweepEvery {
		return
	}
	s.last = time.Now()
	more := false
	err := b.conn.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		removed := make(map[string]int64)
		n, err := deleted(ctx, tx, removed, b.text.sweepExpired, sweepBatch)
		if more = n == sweepBatch; err == nil && beyond {
			n, err = deleted(ctx, tx, removed, b.text.sweepBeyond, b.cfg.Namespace, b.cfg.Retain.Max, sweepBatch)
			more = more || n == sweepBatch
		}
		// in one order, so that two sweeps never wait for each other
		for _, namespace := range slices.Sorted(maps.Keys(removed)) {
			if err == nil && removed[namespace] > 0 {
				_, err = tx.Exec(ctx, b.text.removed, namespace, removed[namespace])
			}
		}
		if err == nil {
			_, err = tx.Exec(ctx, b.text.sweepListeners, sweepBatch)
		}
		return err
	})
	if err != nil {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "expired events could not be deleted; the next sweep tries again", slog.Any("error", err))
		return
	}
	if s.more = more; beyond && !more {
		s.written = 0
	}
}

// deleted runs a statement that deletes messages, adds the number of their kept events to removed,
// by namespace, and returns the number of messages. It waits for the database and returns its
// errors.
func deleted(ctx context.Context, tx *sqlconn.Tx, removed map[string]int64, text string, args ...any) (n int, err error) {
	rows, err := tx.Query(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Err(), rows.Close()) }()
	for rows.Next() {
		var namespace string
		var kept int64
		if err := rows.Scan(&namespace, &kept); err != nil {
			return n, err
		}
		removed[namespace] += kept
		n++
	}
	return n, nil
}
