package sqlevents

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	keptPage = 16 // rows read at once, each of about 20 KB, at most 256 KB with the usual Batch
	// pollEvery is the interval at which an idle replay reads the table without a notification.
	pollEvery = 5 * time.Second
)

// replay is a subscription to kept events and then to new ones. Receive reads the table page by
// page and remembers the position. A lost connection therefore loses no event, and a slow reader is
// only late. It has no goroutine.
type replay struct {
	bus     *Bus
	filter  events.Filter
	since   int64 // microseconds
	watch   *sqlconn.Watcher
	ctx     context.Context // ends with the subscription
	stop    context.CancelFunc
	dropped atomic.Uint64

	turn    chan struct{}  // held by the Receive that reads; it guards the fields below
	at      int64          // seq of the last row that was read
	ready   []events.Event // read and not yet received
	removed int64          // number of removed events when the table was last read
	ahead   int64          // kept events up to at that were not removed by then
}

// Replay implements [events.Retainer]: it returns a stream of kept events from since on, and then
// of new ones. The zero Filter and time select all kept events. since is compared with the
// database's clock, in whole milliseconds. Replay waits for the database. It reads no events:
// Receive does. It takes b.mu, but not while it waits.
//
// If ctx has already ended, Replay returns ctx's error unwrapped. Without a database it waits until
// ctx ends. A refusal of the database is returned at once. Both are [events.ErrUnavailable].
// Returns ErrNotRetained if the bus keeps no events, ErrClosed after Close.
func (b *Bus) Replay(ctx context.Context, f events.Filter, since time.Time) (events.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.Types = slices.Clone(f.Types)
	r := &replay{bus: b, filter: f, turn: make(chan struct{}, 1)}
	if !since.IsZero() { // SQLite's clock counts milliseconds
		r.since = max(since.UnixMilli(), 0) * 1000
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	b.mu.Lock()
	err := error(nil)
	switch {
	case b.closed:
		err = events.ErrClosed
	case !b.cfg.Retain.On():
		err = events.ErrNotRetained
	default:
		b.replays[r] = struct{}{}
		r.watch = b.conn.Watch(0, b.topic)
	}
	b.mu.Unlock()
	if err != nil {
		r.stop()
		return nil, err
	}
	err = b.view(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		return tx.Row(ctx, b.text.begin, b.cfg.Namespace, r.since).Scan(&r.at, &r.ahead, &r.removed)
	})
	if err != nil {
		r.finish()
		return nil, failure("replay", err)
	}
	return r, nil
}

// Retention implements [events.RetentionTeller]: it returns Config.Retain with its defaults.
func (b *Bus) Retention() events.Retention { return b.cfg.Retain }

// Receive implements [events.Subscription]: it returns the next event and reads from the database
// if needed. It keeps trying after a lost connection until ctx ends. One call reads at a time, and
// others wait for it. Returns [events.ErrUnavailable] if the database refuses the read, ctx's
// error, or ErrClosed after Close.
func (r *replay) Receive(ctx context.Context) (events.Event, error) {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return events.Event{}, ctx.Err()
	case <-r.ctx.Done():
		return events.Event{}, events.ErrClosed
	}
	defer func() { <-r.turn }()
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	for attempt := 0; len(r.ready) == 0 || r.ctx.Err() != nil; {
		n, err := r.read(both)
		switch {
		case r.ctx.Err() != nil:
			return events.Event{}, events.ErrClosed
		case ctx.Err() != nil:
			return events.Event{}, ctx.Err()
		case errors.Is(err, sqlconn.ErrUnavailable), errors.Is(err, sqlconn.ErrConflict):
			wake.Sleep(both, r.bus.conn.Interval(attempt))
			attempt++
		case err != nil:
			return events.Event{}, failure("replay", err)
		case n == 0:
			r.wait(both)
		}
	}
	e := r.ready[0]
	r.ready[0] = events.Event{} // frees the memory of the event
	r.ready = r.ready[1:]
	return e, nil
}

// wait waits until a notification arrives, pollEvery has passed or ctx ends.
func (r *replay) wait(ctx context.Context) {
	t := time.NewTimer(pollEvery)
	defer t.Stop()
	select {
	case <-r.watch.C():
	case <-t.C:
	case <-ctx.Done():
	}
}

// keptRow is a row with kept events.
type keptRow struct {
	seq, at, kept int64
	body          []byte
}

// read reads the next page and returns its number of rows. It adds their matching events to r.ready
// and changes the position. It counts events that were removed before they were read. It waits for
// the database, and changes nothing after an error, which it returns. Call it with r.turn held.
func (r *replay) read(ctx context.Context) (int, error) {
	var page []keptRow
	var removed int64
	err := r.bus.view(ctx, func(ctx context.Context, tx *sqlconn.Tx) (err error) {
		page, removed, err = r.query(ctx, tx)
		return err
	})
	if err != nil {
		return 0, err
	}
	// The rows are removed in the order of their numbers, at first those that r has read.
	r.ahead -= removed - r.removed
	r.removed = removed
	if r.ahead < 0 {
		missed := uint64(-r.ahead)
		r.ahead = 0
		r.dropped.Add(missed)
		r.bus.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "a reader of kept events is too slow; events were removed before it read them",
			slog.Uint64("missed", missed))
	}
	for _, row := range page {
		r.at = row.seq
		r.ahead += row.kept
		if row.at < r.since {
			continue
		}
		es, err := r.filter.Decode(row.body)
		if err != nil {
			r.dropped.Add(1)
			continue
		}
		r.ready = append(r.ready, es...)
	}
	return len(page), nil
}

// query returns the rows of the next page, and the number of events that the namespace has removed
// so far, both of the same moment. It waits for the database and returns its errors. Call it with
// r.turn held.
func (r *replay) query(ctx context.Context, tx *sqlconn.Tx) (page []keptRow, removed int64, err error) {
	rows, err := tx.Query(ctx, r.bus.text.kept, r.bus.cfg.Namespace, r.at, keptPage)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, rows.Err(), rows.Close()) }()
	for rows.Next() {
		var seq, at, kept *int64
		var row keptRow
		if err := rows.Scan(&removed, &seq, &at, &kept, &row.body); err != nil {
			return nil, 0, err
		}
		if seq != nil {
			row.seq, row.at, row.kept = *seq, *at, *kept
			page = append(page, row)
		}
	}
	return page, removed, nil
}

// Dropped implements [events.DropCounter]: it counts events that were removed before they were
// read, including those that the filter does not match, and messages without events.
func (r *replay) Dropped() uint64 { return r.dropped.Load() }

// Close implements [events.Subscription]: it ends the subscription, so that every Receive returns
// ErrClosed. It does not block and returns nil. It takes bus.mu.
func (r *replay) Close(context.Context) error {
	r.finish()
	return nil
}

// finish ends the subscription and removes it from the bus. Every Receive then returns ErrClosed.
// It does not block. It takes bus.mu.
func (r *replay) finish() {
	r.stop()
	r.watch.Close()
	r.bus.mu.Lock()
	delete(r.bus.replays, r)
	r.bus.mu.Unlock()
}
