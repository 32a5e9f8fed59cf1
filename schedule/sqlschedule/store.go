package sqlschedule

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/schedule"
)

const (
	// chunk is the largest number of entries in one transaction.
	chunk = 500
	// chunkBytes limits the payloads in one statement.
	chunkBytes = 4 << 20
	// watchPoll is the interval between checks of a SQLite file for other processes' changes.
	watchPoll = 100 * time.Millisecond
)

// Store stores a schedule in a database. Make one with [New] and close it with Close. Safe for
// concurrent use.
type Store struct {
	conn    *sqlconn.Conn
	name    string
	topic   string // topic of the notifications
	text    *texts
	closing chan struct{}
	end     func()
}

var (
	_ schedule.Store    = (*Store)(nil)
	_ schedule.Lister   = (*Store)(nil)
	_ schedule.Pauser   = (*Store)(nil)
	_ schedule.Repairer = (*Store)(nil)
	_ schedule.Watcher  = (*Store)(nil)
	_ schedule.Named    = (*Store)(nil)
	_ schedule.TxAdder  = (*Store)(nil)
	_ schedule.Changer  = (*Store)(nil)
)

// Name returns the schedule's name. See [schedule.Named].
func (s *Store) Name() string { return s.name }

// Close ends the goroutines of Watch, waits for running calls and leaves the database open.
// It returns the error of ctx if ctx ends first. Close is idempotent.
func (s *Store) Close(ctx context.Context) error {
	s.end()
	return s.conn.Close(ctx)
}

// ready creates or upgrades the tables with the first call, and does nothing after a success. It
// blocks until the database answers or ctx ends. Returns [schedule.ErrClosed] after Close, and
// errors of the database wrapped by wrap.
func (s *Store) ready(ctx context.Context) error {
	select {
	case <-s.closing:
		return schedule.ErrClosed
	default:
		return s.wrap("tables", s.conn.Ready(ctx))
	}
}

// wrap returns err with the operation what in its text. nil and [schedule.ErrNotFound] stay as they
// are. It adds [schedule.ErrClosed] after Close, and [schedule.ErrUnsupported] if the tables belong
// to another version or program. It adds [schedule.ErrUnavailable] if the database did not answer,
// answered with a conflict, was full, refused access, or if the outcome is unknown.
func (s *Store) wrap(what string, err error) error {
	switch {
	case err == nil, errors.Is(err, schedule.ErrNotFound):
		return err
	case errors.Is(err, sqlconn.ErrClosed):
		return fmt.Errorf("sqlschedule %s: %w: %w", what, schedule.ErrClosed, err)
	case errors.Is(err, sqlconn.ErrForeign):
		return fmt.Errorf("sqlschedule %s: %w: %w", what, schedule.ErrUnsupported, err)
	}
	for _, class := range []error{sqlconn.ErrUnavailable, sqlconn.ErrIndeterminate, sqlconn.ErrConflict, sqlconn.ErrFull, sqlconn.ErrAccess} {
		if errors.Is(err, class) {
			return fmt.Errorf("sqlschedule %s: %w: %w", what, schedule.ErrUnavailable, err)
		}
	}
	return fmt.Errorf("sqlschedule %s: %w", what, err)
}

// view calls ready and then fn, which only reads. Each statement of fn sees the data that was
// committed before it; they share no transaction. fn may run more than once. Errors are wrapped by
// wrap.
func (s *Store) view(ctx context.Context, what string, fn sqlconn.Func) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.wrap(what, s.conn.View(ctx, fn))
}

// update calls ready and then fn in a transaction that writes. It commits if fn returns nil, and
// otherwise rolls back. A transaction that was surely not committed is repeated, and fn with it.
// Errors are wrapped by wrap. After [schedule.ErrUnavailable] the transaction may be committed.
func (s *Store) update(ctx context.Context, what string, fn sqlconn.Func) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.wrap(what, s.conn.Update(ctx, fn))
}

// Add implements [schedule.Store]. It adds the entries that do not exist, notifies the watchers of
// all processes, and returns for each entry whether it is new. Of two entries with one id only the
// first can be new. An existing entry does not change, with one exception: it gets its Next if it
// has no due time and no claim and is not paused.
//
// If an entry is invalid, it adds nothing and returns [schedule.ErrBadEntry]. The entries are added
// in several transactions. After another error, wrapped by wrap, some may have been added.
func (s *Store) Add(ctx context.Context, entries []schedule.Entry) ([]bool, error) {
	if err := checkEntries(entries); err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return inChunks(entries, func(part []schedule.Entry) ([]bool, error) { return s.add(ctx, part) })
}

// checkEntries returns the errors of all invalid entries, joined.
func checkEntries(entries []schedule.Entry) error {
	var errs []error
	for i := range entries {
		errs = append(errs, entries[i].Check())
	}
	return errors.Join(errs...)
}

// inChunks calls add for parts of entries that fit into one statement, one after the other. It
// returns the answers of all parts, or nil and the first error; earlier parts are then added.
func inChunks(entries []schedule.Entry, add func([]schedule.Entry) ([]bool, error)) ([]bool, error) {
	added := make([]bool, 0, len(entries))
	for len(entries) > 0 {
		n, size := 0, 0
		for n < len(entries) && n < chunk && size < chunkBytes {
			size += len(entries[n].Payload)
			n++
		}
		fresh, err := add(entries[:n])
		if err != nil {
			return nil, err
		}
		added = append(added, fresh...)
		entries = entries[n:]
	}
	return added, nil
}

// add adds up to chunk entries in one transaction. In a second one it gives their Next to existing
// entries without due time, claim and pause. It returns for each whether it is new; of two entries
// with one id only the first can be. AtOnce entries get the next free milliseconds of their second,
// in their order. It notifies the watchers of all processes if it added or changed an entry. After
// an error of the first transaction the entries may be added, and after one of the second they are
// added. Errors are wrapped by wrap.
func (s *Store) add(ctx context.Context, entries []schedule.Entry) ([]bool, error) {
	var added []bool
	var known [][]any
	err := s.conn.Single(ctx, func(ctx context.Context, tx *sqlconn.Tx) (err error) {
		added, known, err = s.insert(ctx, tx, entries)
		return err
	})
	if err != nil {
		return nil, s.wrap("add", err)
	}
	_, err = s.repair(ctx, "add", known)
	return added, err
}

// insert adds up to chunk entries by one statement, and notifies the watchers after the commit if
// it added any. It returns for each whether it is new, and the rows (id, next) of those that
// existed. Returns errors of the database.
func (s *Store) insert(ctx context.Context, tx *sqlconn.Tx, entries []schedule.Entry) (added []bool, known [][]any, err error) {
	rows, query, place := make([][]any, len(entries)), s.text.add, 0
	for i := range entries {
		rows[i] = []any{entries[i].ID, hex.EncodeToString(entries[i].Payload), entries[i].Next.UnixMilli()}
	}
	if slices.ContainsFunc(entries, func(e schedule.Entry) bool { return e.AtOnce }) {
		query = s.text.queue
		for i := range rows {
			if !entries[i].AtOnce {
				rows[i] = append(rows[i], 0)
				continue
			}
			place++
			rows[i] = append(rows[i], place)
		}
	}
	fresh := make(map[string]bool)
	answer, err := tx.Query(ctx, query, s.name, asJSON(rows))
	if err != nil {
		return nil, nil, err
	}
	for answer.Next() {
		var id string
		if err := answer.Scan(&id); err != nil {
			return nil, nil, err
		}
		fresh[id] = true
	}
	if err := errors.Join(answer.Err(), answer.Close()); err != nil {
		return nil, nil, err
	}
	if len(fresh) > 0 {
		tx.Notify(s.topic)
	}
	added = make([]bool, len(entries))
	for i := range entries {
		if added[i] = fresh[entries[i].ID]; !added[i] {
			known = append(known, []any{entries[i].ID, entries[i].Next.UnixMilli()})
		}
		delete(fresh, entries[i].ID) // if the call has the entry twice, only the first was added
	}
	return added, known, nil
}

// repair sets the due time of those of the given entries (id, next) that have no due time, claim or
// pause. If it changed any, it notifies the watchers. It returns the number of changed entries, and
// errors as wrap does. Without rows it does nothing.
func (s *Store) repair(ctx context.Context, what string, rows [][]any) (n int64, err error) {
	if len(rows) == 0 {
		return 0, nil
	}
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	err = s.conn.Single(ctx, func(ctx context.Context, tx *sqlconn.Tx) (err error) {
		n, err = s.setDue(ctx, tx, rows)
		return err
	})
	return n, s.wrap(what, err)
}

// setDue does in the transaction tx what repair does in its own: it sets the due time of those
// entries (id, next) that have no due time, claim or pause. It returns the number of changed
// entries. If it is not 0, the watchers are notified after the commit.
func (s *Store) setDue(ctx context.Context, tx *sqlconn.Tx, rows [][]any) (int64, error) {
	n, err := tx.Exec(ctx, s.text.repair, s.name, asJSON(rows))
	if n > 0 {
		tx.Notify(s.topic)
	}
	return n, err
}

// Due implements [schedule.Store]: it returns up to max due ticks without a valid claim, the
// longest overdue first, and changes nothing. With max 0 or less it returns only the times: that of
// the database, and the next one at which a tick or the end of a claim is due. It waits for the
// database. Errors are wrapped by wrap.
func (s *Store) Due(ctx context.Context, max int) (schedule.Batch, error) {
	var b schedule.Batch
	err := s.view(ctx, "due", func(ctx context.Context, tx *sqlconn.Tx) error {
		b = schedule.Batch{}
		var now, due int64
		var next, until *int64
		if err := tx.Row(ctx, s.text.times, s.name).Scan(&now, &next, &until, &due); err != nil {
			return err
		}
		b.Now, b.Next = moment(&now), earlier(moment(next), moment(until))
		if due == 0 || max <= 0 {
			return nil
		}
		rows, err := tx.Query(ctx, s.text.due, s.name, now, max)
		if err != nil {
			return err
		}
		for rows.Next() {
			var k schedule.Tick
			var at, since, version int64
			if k.Entry, err = scan(rows, &at, &k.Owner, &since, &version); err != nil {
				return err
			}
			k.Due, k.Ref = moment(&at), refOf(version)
			b.Ticks = append(b.Ticks, k)
		}
		return errors.Join(rows.Err(), rows.Close())
	})
	return b, err
}

// Remove implements [schedule.Store]: it deletes an entry with its state and claims in one
// transaction, and reports whether it existed. Errors are wrapped by wrap.
func (s *Store) Remove(ctx context.Context, id string) (bool, error) {
	var n int64
	err := s.update(ctx, "remove", func(ctx context.Context, tx *sqlconn.Tx) (err error) {
		if n, err = tx.Exec(ctx, s.text.remove, s.name, id); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, s.text.forget, s.name, id)
		return err
	})
	return n > 0, err
}

// scan reads the columns of an entry from the current row and, into more, the columns after them.
// An empty state becomes nil. Returns the error of the read.
func scan(rows sqlconn.Rows, more ...any) (schedule.Entry, error) {
	var e schedule.Entry
	var next, last *int64
	var paused int64
	var runs string
	err := rows.Scan(append([]any{&e.ID, &e.Payload, &next, &paused, &last, &e.State, &runs, &e.Group}, more...)...)
	e.Runs = readRuns(runs)
	e.Next, e.Last, e.Paused = moment(next), moment(last), paused != 0
	if len(e.State) == 0 {
		e.State = nil
	}
	return e, err
}

// moment converts a time of the database; nil becomes the zero time.
func moment(ms *int64) time.Time {
	if ms == nil {
		return time.Time{}
	}
	return time.UnixMilli(*ms).UTC()
}

// millis returns t as milliseconds since 1970, the form in the database; nil for the zero time.
func millis(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}

// earlier returns the earlier of two times, ignoring zero times.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// asJSON returns rows as the JSON argument of a statement.
func asJSON(rows [][]any) string {
	text, _ := json.Marshal(rows) // strings and numbers can always be encoded
	return string(text)
}
