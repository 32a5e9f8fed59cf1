package sqlresults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/keyset"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

const (
	// pageSize is how many records a stream reads at once.
	pageSize = 256
	// lookEvery is how often a stream looks without being told of anything, for a word that was lost.
	lookEvery = 5 * time.Second
)

// topic is what the streams of a node watch.
func (s *Store) topic(node string) string { return "results " + s.cfg.Namespace + " " + node }

// stream is the notifications of one node. It has no goroutine and buffers one page: whoever receives reads the rows that
// it has not seen. It implements [resultstore.Notifications].
type stream struct {
	store *Store
	node  string
	watch *sqlconn.Watcher
	ctx   context.Context // ends with the stream
	stop  context.CancelFunc

	turn  chan struct{} // holds a value while somebody receives; the rest is his
	at    cursor
	dirty bool   // there may be rows that were not read
	ready []note // that were read
}

// note is a record that was read; without a value it is to be loaded.
type note struct {
	id    string
	value []byte
}

// cursor is how far a stream has read.
type cursor struct {
	seq int64 // on SQLite: of the last row
	// On PostgreSQL: what was visible in snapshot since was read, and of what is visible in until, as far as that is set, all up to
	// a row of the table.
	since, until, xact, id string
}

// Notify implements [resultstore.Notifier]. Without a database it waits until ctx ends, which is
// [resultstore.ErrUnavailable]. A node that is no valid name is [resultstore.ErrMalformed]. Every open stream of a node gets every record.
func (s *Store) Notify(ctx context.Context, node string) (resultstore.Notifications, error) {
	if s.life.Err() != nil {
		return nil, resultstore.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !keyset.ValidName(node) {
		return nil, fmt.Errorf("%w: node %q is no name", resultstore.ErrMalformed, utf.Cut(node, 64))
	}
	n := &stream{store: s, node: node, turn: make(chan struct{}, 1)}
	n.ctx, n.stop = context.WithCancel(context.Background())
	s.mu.Lock()
	if s.life.Err() != nil {
		s.mu.Unlock()
		n.stop()
		return nil, resultstore.ErrClosed
	}
	s.streams[n] = struct{}{}
	n.watch = s.conn.Watch(0, s.topic(node)) // first, so that nothing is missed between
	s.mu.Unlock()
	err := s.repeat(ctx, "notify", func() error {
		return s.conn.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) (err error) {
			n.at, err = s.here(ctx, tx)
			return err
		})
	})
	if err != nil {
		n.finish()
		return nil, err
	}
	return n, nil
}

// here is where a stream begins that wants what comes from now on.
func (s *Store) here(ctx context.Context, tx *sqlconn.Tx) (at cursor, err error) {
	if s.conn.Dialect() == sqlconn.Postgres {
		err = tx.Row(ctx, s.text.here).Scan(&at.since)
		at.xact = "0"
	} else {
		err = tx.Row(ctx, s.text.here).Scan(&at.seq)
	}
	return at, err
}

// Receive implements [resultstore.Notifications]. Besides its errors it returns [resultstore.ErrMalformed] for a row that
// holds no record, and [resultstore.ErrUnavailable] when the database refuses to show what there is; the stream goes on.
func (n *stream) Receive(ctx context.Context) (resultstore.Record, error) {
	select {
	case n.turn <- struct{}{}:
	case <-ctx.Done():
		return resultstore.Record{}, ctx.Err()
	case <-n.ctx.Done():
		return resultstore.Record{}, resultstore.ErrClosed
	}
	defer func() { <-n.turn }()
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()
	for {
		r, err := n.next(both)
		switch {
		case n.ctx.Err() != nil:
			return resultstore.Record{}, resultstore.ErrClosed
		case err != nil && ctx.Err() != nil:
			return resultstore.Record{}, ctx.Err()
		case errors.Is(err, resultstore.ErrNotFound): // deleted since, or its time is over
		default:
			return r, err
		}
	}
}

// next returns the next record. When ctx ends it takes nothing out.
func (n *stream) next(ctx context.Context) (resultstore.Record, error) {
	for len(n.ready) == 0 {
		if !n.dirty {
			if err := n.wait(ctx); err != nil {
				return resultstore.Record{}, err
			}
			n.dirty = true
		}
		if err := n.look(ctx); err != nil {
			return resultstore.Record{}, err
		}
	}
	r, err := n.read(ctx, &n.ready[0])
	if err == nil || ctx.Err() == nil {
		n.ready = n.ready[1:]
	}
	return r, err
}

// wait waits until there may be something new.
func (n *stream) wait(ctx context.Context) error {
	t := time.NewTimer(lookEvery)
	defer t.Stop()
	select {
	case <-n.watch.C():
		return nil
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read makes a record of what was read.
func (n *stream) read(ctx context.Context, next *note) (resultstore.Record, error) {
	if next.value == nil {
		return n.store.Load(ctx, task.ID(next.id))
	}
	return decode(next.value, task.ID(next.id))
}

// look reads a page.
func (n *stream) look(ctx context.Context) error {
	var page []note
	var at cursor
	err := n.store.conn.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) (err error) {
		if tx.Dialect() == sqlconn.Postgres {
			page, at, err = n.lookPostgres(ctx, tx)
		} else {
			page, at, err = n.lookSQLite(ctx, tx)
		}
		return err
	})
	if err != nil {
		return failure("notifications of "+n.node, err)
	}
	n.ready, n.at, n.dirty = page, at, len(page) == pageSize
	return nil
}

// lookSQLite reads what comes after the last row.
func (n *stream) lookSQLite(ctx context.Context, tx *sqlconn.Tx) (page []note, at cursor, err error) {
	at = n.at
	c := &n.store.cfg
	rows, err := tx.Query(ctx, n.store.text.look, c.Namespace, n.node, at.seq, c.MaxNotice, pageSize)
	if err != nil {
		return nil, at, err
	}
	defer func() { err = errors.Join(err, rows.Err(), rows.Close()) }()
	for rows.Next() {
		var next note
		if err := rows.Scan(&at.seq, &next.id, &next.value); err != nil {
			return nil, at, err
		}
		page = append(page, next)
	}
	return page, at, nil
}

// lookPostgres reads what the snapshot before did not see. When all of it was read, the snapshot of this statement takes its place.
func (n *stream) lookPostgres(ctx context.Context, tx *sqlconn.Tx) (page []note, at cursor, err error) {
	at = n.at
	c := &n.store.cfg
	rows, err := tx.Query(ctx, n.store.text.look, c.Namespace, n.node, at.since, at.until, at.xact, at.id, c.MaxNotice, pageSize)
	if err != nil {
		return nil, at, err
	}
	defer func() { err = errors.Join(err, rows.Err(), rows.Close()) }()
	var snapshot string
	for rows.Next() {
		var xact, id *string
		var next note
		if err := rows.Scan(&snapshot, &xact, &id, &next.value); err != nil {
			return nil, at, err
		}
		if id != nil {
			next.id, at.xact, at.id = *id, *xact, *id
			page = append(page, next)
		}
	}
	if at.until == "" {
		at.until = snapshot
	}
	if len(page) < pageSize {
		at = cursor{since: at.until, xact: "0"}
	}
	return page, at, nil
}

// Close implements [resultstore.Notifications]. It waits for nothing.
func (n *stream) Close(context.Context) error {
	n.finish()
	return nil
}

func (n *stream) finish() {
	n.stop()
	n.watch.Close()
	n.store.mu.Lock()
	delete(n.store.streams, n)
	n.store.mu.Unlock()
}
