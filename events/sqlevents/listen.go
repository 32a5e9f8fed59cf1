package sqlevents

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/ring"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	livePage = 64 // rows that are read at once, each of up to 256 KB with the usual Batch
	// lookEvery is the interval at which the table is read without a notification. Notifications
	// are lost with a connection.
	lookEvery = time.Second
)

// listener is a subscription to new events. The reading goroutine of the bus decodes messages into
// its limited buffer.
type listener struct {
	*ring.Stream[events.Event]
	bus       *Bus
	filter    events.Filter
	malformed atomic.Uint64
	after     int64 // it receives rows with a larger seq; guarded by bus.mu
}

// Subscribe implements [events.EventBus]: it returns a stream of the new events that match f. It
// waits for the database. If publishers do not write the types of f yet, it also waits 0.3 s, until
// all of them know that a listener wants them. If ctx has already ended, it returns ctx's error
// unwrapped. It takes b.mu, but not while it waits.
//
// Without a database it waits until ctx ends. A refusal of the database is returned at once. Both
// are [events.ErrUnavailable]. Returns ErrClosed after Close.
func (b *Bus) Subscribe(ctx context.Context, f events.Filter) (events.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.Types = slices.Clone(f.Types)
	l := &listener{
		Stream: ring.NewStream[events.Event](b.cfg.Buffer, events.ErrClosed),
		bus:    b, filter: f, after: math.MaxInt64,
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, events.ErrClosed
	}
	b.listeners[l] = struct{}{}
	b.mu.Unlock()
	err := b.register(ctx)
	if err == nil {
		err = b.settle(ctx, f.Types)
	}
	if err == nil {
		err = b.begin(ctx, l)
	}
	if err != nil {
		l.finish()
		return nil, failure("subscribe", err)
	}
	return l, nil
}

// begin lets l receive the rows that are written from now on, and starts the reading goroutine if
// it does not run. It waits for the database and returns its errors. Returns ErrClosed if the bus
// was closed meanwhile. It takes b.mu, but not while it waits.
func (b *Bus) begin(ctx context.Context, l *listener) error {
	var here int64
	err := b.view(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		return tx.Row(ctx, b.text.here).Scan(&here)
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return sqlconn.Closed()
	}
	l.after = here
	b.left = time.Time{}
	if !b.reading {
		b.reading = true
		b.work.Go(func() { b.read(here) })
	}
	return nil
}

// read is the body of the reading goroutine. It gives the rows after seq to the listeners and
// renews the row of this bus. It logs a refusal of the database and tries again. It returns when no
// listener is left or the bus is closed. Without rows it checks its position at times, see
// fallBack. It takes b.mu, but not while it waits.
func (b *Bus) read(seq int64) {
	watch := b.conn.Watch(0, b.topic)
	defer watch.Close()
	renewal := time.Now().Add(lease / 3)
	var checked time.Time
	for failed := 0; ; {
		n, err := b.readPage(&seq)
		if now := time.Now(); n == 0 && err == nil && now.Sub(checked) > lookEvery {
			checked = now
			err = b.fallBack(&seq)
		}
		if time.Now().After(renewal) && err == nil {
			if _, wanted := b.wantedTypes(); wanted { // without listeners register would end the time linger
				err = b.register(b.life)
			}
			renewal = time.Now().Add(lease / 3)
		}
		if b.stopReading() {
			return
		}
		switch {
		case err != nil && !errors.Is(err, sqlconn.ErrUnavailable):
			if failed == 0 {
				b.cfg.Logger.LogAttrs(b.life, slog.LevelWarn, "events cannot be read; the next attempt follows", slog.Any("error", err))
			}
			fallthrough
		case err != nil:
			wake.SleepOr(b.life, b.changed, b.conn.Interval(failed))
			failed++
			continue
		}
		failed = 0
		if n == livePage {
			continue
		}
		t := time.NewTimer(lookEvery)
		select {
		case <-watch.C():
		case <-b.changed:
		case <-t.C:
		case <-b.life.Done():
		}
		t.Stop()
	}
}

// fallBack lowers the position *seq, and those of the listeners, to the last row. A server that has
// crashed may have lost rows that were read, and gives their numbers to later rows. If only expired
// rows are gone, a lower position does no harm. It waits for the database and returns its errors.
// It takes b.mu, but not while it waits.
func (b *Bus) fallBack(seq *int64) error {
	var here int64
	err := b.view(b.life, func(ctx context.Context, tx *sqlconn.Tx) error { return tx.Row(ctx, b.text.here).Scan(&here) })
	if err != nil || here >= *seq {
		return err
	}
	*seq = here
	b.mu.Lock()
	defer b.mu.Unlock()
	for l := range b.listeners {
		l.after = min(l.after, here)
	}
	return nil
}

// linger is the time for which a bus stays registered without a listener. The next listener of the
// same types, such as for the replies to the next command, then need not wait, see settle.
const linger = 5 * time.Second

// stopReading reports whether the reading goroutine must return: there was no listener for the time
// linger, or the bus is closed. Then it sets b.reading to false and registers the bus again, which
// deletes its row if the bus has no listener. It ignores errors of that. It takes b.mu, but not
// while it waits.
func (b *Bus) stopReading() bool {
	b.mu.Lock()
	if len(b.listeners) > 0 {
		b.left = time.Time{}
	} else if b.left.IsZero() {
		b.left = time.Now()
	}
	stop := b.life.Err() != nil || !b.left.IsZero() && (b.closed || time.Since(b.left) >= linger)
	b.reading = !stop
	b.mu.Unlock()
	if stop {
		ctx, cancel := context.WithTimeout(b.life, closeTimeout)
		defer cancel()
		_ = b.register(ctx) // otherwise the row ends with its lease
	}
	return stop
}

// readPage gives up to livePage rows after *seq to the listeners and returns their number. It
// changes *seq to the last of them. It waits for the database and returns its errors. It takes
// b.mu, but not while it waits.
func (b *Bus) readPage(seq *int64) (n int, err error) {
	type row struct {
		seq  int64
		body []byte
	}
	var page []row
	err = b.view(b.life, func(ctx context.Context, tx *sqlconn.Tx) (err error) {
		page = page[:0]
		rows, err := tx.Query(ctx, b.text.live, b.cfg.Namespace, *seq, livePage)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Err(), rows.Close()) }()
		for rows.Next() {
			var r row
			if err := rows.Scan(&r.seq, &r.body); err != nil {
				return err
			}
			page = append(page, r)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, r := range page {
		*seq = r.seq
		b.mu.Lock()
		to := make([]*listener, 0, len(b.listeners))
		for l := range b.listeners {
			if l.after < r.seq {
				to = append(to, l)
			}
		}
		b.mu.Unlock()
		for _, l := range to {
			l.put(r.body)
		}
	}
	return len(page), nil
}

// put adds the matching events of a message to the buffer. Each listener decodes the message, so
// that its events are its own. It counts an invalid message as one dropped event. It does not
// block.
func (l *listener) put(message []byte) {
	es, err := l.filter.Decode(message)
	if err != nil {
		l.malformed.Add(1)
		return
	}
	for i := range es {
		l.Put(&es[i])
	}
}

// Receive implements [events.Subscription]: it waits for the next event in the buffer and returns
// it, also if ctx has ended. Returns ctx's error when ctx ends and ErrClosed after Close of the
// subscription or the bus.
func (l *listener) Receive(ctx context.Context) (events.Event, error) { return l.Get(ctx) }

// Dropped implements [events.DropCounter]: it counts events that newer ones replaced in the buffer,
// and invalid messages. Events lost on the way are not counted.
func (l *listener) Dropped() uint64 { return l.Stream.Dropped() + l.malformed.Load() }

// Close implements [events.Subscription]: it ends the subscription, so that every Receive returns
// ErrClosed. It does not block and returns nil. It takes bus.mu.
func (l *listener) Close(context.Context) error {
	l.finish()
	return nil
}

// finish ends the subscription, drops its buffered events and removes it from the bus. It wakes the
// reading goroutine, which deletes the row of the bus if no listener is left. It does not block. It
// takes bus.mu.
func (l *listener) finish() {
	l.Stream.Close()
	l.bus.mu.Lock()
	delete(l.bus.listeners, l)
	l.bus.mu.Unlock()
	l.bus.changed.Notify()
}
