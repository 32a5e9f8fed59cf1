package sqlresults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

const (
	// pageSize is the number of records that a stream reads at once.
	pageSize = 256
	// lookEvery is the interval at which a stream reads the table without a notification, because
	// notifications may be lost.
	lookEvery = 5 * time.Second
)

// topic returns the topic that the streams of a node watch.
func (s *Store) topic(node string) string { return "results " + s.cfg.Namespace + " " + node }

// stream delivers the notifications of one node. It has no goroutine and holds at most one page:
// Receive reads the rows that it has not seen. It implements [resultstore.Notifications].
type stream struct {
	store *Store
	node  string
	watch *sqlconn.Watcher
	ctx   context.Context // ends with the stream
	stop  context.CancelFunc

	turn  chan struct{} // held by the running Receive; it guards the fields below
	at    cursor
	dirty bool   // the table may have unread rows
	ready []note // read rows that Receive has not returned
}

// note is a row that was read. Without a value the record must be loaded.
type note struct {
	id    string
	value []byte
}

// cursor is the position of a stream in the table.
type cursor struct {
	seq int64 // on SQLite: of the last row
	// On PostgreSQL all rows that are visible in snapshot since were read. If until is set, rows
	// visible in it were read up to the row (xact, id).
	since, until, xact, id string
}

// Notify implements [resultstore.Notifier]: it returns a stream of all terminal records of the node
// that are saved after Notify has returned. Every open stream of node receives every one of them.
// It waits for the database. It takes s.mu, but not while it waits.
//
// If ctx has already ended, Notify returns ctx's error. If ctx ends later, or the database refuses,
// it returns [resultstore.ErrUnavailable]. An invalid node name is [resultstore.ErrMalformed].
// Returns ErrClosed after Close.
func (s *Store) Notify(ctx context.Context, node string) (resultstore.Notifications, error) {
	if s.life.Err() != nil {
		return nil, resultstore.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !naming.ValidName(node) {
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
	// before the cursor is read, so that no change is missed in between
	n.watch = s.conn.Watch(0, s.topic(node))
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

// here returns the cursor of a stream that begins now: on PostgreSQL the current snapshot, on
// SQLite the highest seq so far. It waits for the database and returns its errors.
func (s *Store) here(ctx context.Context, tx *sqlconn.Tx) (at cursor, err error) {
	if s.conn.Dialect() == sqlconn.Postgres {
		err = tx.Row(ctx, s.text.here).Scan(&at.since)
		at.xact = "0"
	} else {
		err = tx.Row(ctx, s.text.here).Scan(&at.seq)
	}
	return at, err
}

// Receive implements [resultstore.Notifications]: it waits for the next terminal record for the
// node and returns it. It skips records that were deleted or have expired since. One call reads
// at a time, and others wait for it. When ctx ends it returns ctx's error, and no record is
// missed. Returns ErrClosed after Close. The stream continues after these additional errors:
//
//   - [resultstore.ErrMalformed] for a row without a valid record
//   - [resultstore.ErrUnavailable] if the database refuses to read
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
		case errors.Is(err, resultstore.ErrNotFound): // deleted or expired since
		default:
			return r, err
		}
	}
}

// next waits for the next record and returns it. Call it with n.turn held.
//
//   - ctx ends: it returns an error, and the record stays for the next call.
//   - The table cannot be read: it returns the error, and the next call reads again.
//   - A read record cannot be returned, for example ErrNotFound because it has expired: it returns
//     the error and skips the record.
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

// wait waits until a notification arrives or lookEvery has passed. Returns ctx's error when ctx
// ends.
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

// read returns the record of a note: decoded from its value, or, if the note has no value, loaded
// from the database, for which it waits. Returns ErrMalformed if the value is not the record of
// next.id, and the errors of Load.
func (n *stream) read(ctx context.Context, next *note) (resultstore.Record, error) {
	if next.value == nil {
		return n.store.Load(ctx, task.ID(next.id))
	}
	return decode(next.value, task.ID(next.id))
}

// look reads the next page of rows into n.ready, moves the cursor, and clears n.dirty after the
// last page. It returns an error of the port and changes nothing if the read fails. It waits for
// the database. Call it with n.turn held.
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

// lookSQLite reads a page of the rows after the last one, by seq, and returns it with the new
// cursor. Expired rows are left out. A record above MaxNotice has no value. It changes nothing in
// n. It waits for the database and returns its errors. Call it with n.turn held.
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

// lookPostgres reads a page of the rows that are not visible in the cursor's snapshot, and returns
// it with the new cursor. After the last page the cursor gets the snapshot of the first page's
// statement. A record above MaxNotice has no value. It changes nothing in n. It waits for the
// database and returns its errors. Call it with n.turn held.
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

// Close implements [resultstore.Notifications]: it ends the stream, so that every Receive returns
// ErrClosed. It does not block and returns nil. It takes store.mu.
func (n *stream) Close(context.Context) error {
	n.finish()
	return nil
}

// finish ends the stream and its watcher and removes it from the store. Every Receive then returns
// ErrClosed. It does not block. It takes store.mu.
func (n *stream) finish() {
	n.stop()
	n.watch.Close()
	n.store.mu.Lock()
	delete(n.store.streams, n)
	n.store.mu.Unlock()
}
