package sqlschedule

import (
	"context"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/schedule"
)

//go:embed migrations
var migrations embed.FS

const (
	// chunk is how many entries one transaction changes at most.
	chunk = 500
	// chunkBytes is how many bytes of payloads one statement adds.
	chunkBytes = 4 << 20
	// watchPoll is how often a SQLite file is looked at for other processes' changes.
	watchPoll = 100 * time.Millisecond
)

// Store keeps a schedule in a database. Make one with [New], and end it with Close. All methods may be called from any
// goroutine.
type Store struct {
	conn    *sqlconn.Conn
	name    string
	topic   string // of wake-ups
	text    *texts
	closing chan struct{}
	end     func()

	mu       sync.Mutex
	migrated bool
}

var (
	_ schedule.Store   = (*Store)(nil)
	_ schedule.Lister  = (*Store)(nil)
	_ schedule.Pauser  = (*Store)(nil)
	_ schedule.Mender  = (*Store)(nil)
	_ schedule.Watcher = (*Store)(nil)
	_ schedule.Named   = (*Store)(nil)
)

// Name implements [schedule.Named].
func (s *Store) Name() string { return s.name }

// Close waits for what is under way and closes all connections; when ctx ends before, its error is returned. It is idempotent.
func (s *Store) Close(ctx context.Context) error {
	s.end()
	return s.conn.Close(ctx)
}

// ready makes the tables, once, or says why nothing may be done.
func (s *Store) ready(ctx context.Context) error {
	select {
	case <-s.closing:
		return schedule.ErrClosed
	default:
	}
	s.mu.Lock()
	done := s.migrated
	s.mu.Unlock()
	if done {
		return nil
	}
	files, err := fs.Sub(migrations, "migrations")
	if err == nil {
		err = s.conn.Migrate(ctx, "schedule", files) // those who come at the same moment wait for each other
	}
	if err != nil {
		return s.wrap("tables", err)
	}
	s.mu.Lock()
	s.migrated = true
	s.mu.Unlock()
	return nil
}

// wrap puts the port's error beside the database's.
func (s *Store) wrap(what string, err error) error {
	switch {
	case err == nil, errors.Is(err, schedule.ErrNotFound):
		return err
	case errors.Is(err, sqlconn.ErrClosed):
		return fmt.Errorf("sqlschedule %s: %w: %w", what, schedule.ErrClosed, err)
	}
	for _, class := range []error{sqlconn.ErrUnavailable, sqlconn.ErrIndeterminate, sqlconn.ErrConflict, sqlconn.ErrFull, sqlconn.ErrAccess} {
		if errors.Is(err, class) {
			return fmt.Errorf("sqlschedule %s: %w: %w", what, schedule.ErrUnavailable, err)
		}
	}
	return fmt.Errorf("sqlschedule %s: %w", what, err)
}

// view runs a function that only reads.
func (s *Store) view(ctx context.Context, what string, fn sqlconn.Func) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.wrap(what, s.conn.View(ctx, fn))
}

// update runs a function that writes.
func (s *Store) update(ctx context.Context, what string, fn sqlconn.Func) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.wrap(what, s.conn.Update(ctx, fn))
}

// Add implements [schedule.Store].
func (s *Store) Add(ctx context.Context, entries []schedule.Entry) ([]bool, error) {
	var errs []error
	for i := range entries {
		errs = append(errs, entries[i].Check())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	added := make([]bool, 0, len(entries))
	for len(entries) > 0 {
		n, size := 0, 0
		for n < len(entries) && n < chunk && size < chunkBytes {
			size += len(entries[n].Payload)
			n++
		}
		fresh, err := s.add(ctx, entries[:n])
		if err != nil {
			return nil, err
		}
		added = append(added, fresh...)
		entries = entries[n:]
	}
	return added, nil
}

func (s *Store) add(ctx context.Context, entries []schedule.Entry) ([]bool, error) {
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
	var fresh map[string]bool
	err := s.conn.Single(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		fresh = make(map[string]bool)
		answer, err := tx.Query(ctx, query, s.name, asJSON(rows))
		if err != nil {
			return err
		}
		for answer.Next() {
			var id string
			if err := answer.Scan(&id); err != nil {
				return err
			}
			fresh[id] = true
		}
		if len(fresh) > 0 {
			tx.Notify(s.topic)
		}
		return errors.Join(answer.Err(), answer.Close())
	})
	if err != nil {
		return nil, s.wrap("add", err)
	}
	added := make([]bool, len(entries))
	var known [][]any
	for i := range entries {
		if added[i] = fresh[entries[i].ID]; !added[i] {
			known = append(known, []any{entries[i].ID, entries[i].Next.UnixMilli()})
		}
		delete(fresh, entries[i].ID) // a second one of the call was there already
	}
	_, err = s.mend(ctx, "add", known)
	return added, err
}

// mend gives times to entries that have lost theirs, and returns how many they were.
func (s *Store) mend(ctx context.Context, what string, rows [][]any) (n int64, err error) {
	if len(rows) == 0 {
		return 0, nil
	}
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	err = s.conn.Single(ctx, func(ctx context.Context, tx *sqlconn.Tx) (err error) {
		if n, err = tx.Exec(ctx, s.text.mend, s.name, asJSON(rows)); n > 0 {
			tx.Notify(s.topic)
		}
		return err
	})
	return n, s.wrap(what, err)
}

// Due implements [schedule.Store].
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
			var at, since int64
			if k.Entry, err = scan(rows, &at, &k.Owner, &since); err != nil {
				return err
			}
			k.Due = moment(&at)
			b.Ticks = append(b.Ticks, k)
		}
		return errors.Join(rows.Err(), rows.Close())
	})
	return b, err
}

// Remove implements [schedule.Store].
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

// scan reads the columns of an entry, and what follows them.
func scan(rows sqlconn.Rows, more ...any) (schedule.Entry, error) {
	var e schedule.Entry
	var next, last *int64
	var paused int64
	err := rows.Scan(append([]any{&e.ID, &e.Payload, &next, &paused, &last, &e.State}, more...)...)
	e.Next, e.Last, e.Paused = moment(next), moment(last), paused != 0
	if len(e.State) == 0 {
		e.State = nil
	}
	return e, err
}

// moment is a time of the database; nil: none.
func moment(ms *int64) time.Time {
	if ms == nil {
		return time.Time{}
	}
	return time.UnixMilli(*ms).UTC()
}

// millis is a time for the database; nil: none.
func millis(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}

// earlier returns the first of two times; zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// asJSON is a list for a statement.
func asJSON(rows [][]any) string {
	text, _ := json.Marshal(rows) // texts and numbers always have a form
	return string(text)
}
