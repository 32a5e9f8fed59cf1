package sqlschedule

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/schedule"
)

// Get implements [schedule.Lister]: it returns an entry, or [schedule.ErrNotFound]. It waits for
// the database. Other errors are wrapped by wrap.
func (s *Store) Get(ctx context.Context, id string) (schedule.Entry, error) {
	var found []schedule.Entry
	err := s.view(ctx, "get", func(ctx context.Context, tx *sqlconn.Tx) (err error) {
		found, err = read(ctx, tx, s.text.get, s.name, id)
		return err
	})
	switch {
	case err != nil:
		return schedule.Entry{}, err
	case len(found) == 0:
		return schedule.Entry{}, schedule.ErrNotFound
	}
	return found[0], nil
}

// List implements [schedule.Lister]: it returns up to limit entries, at least one, sorted by id.
// The cursor of the next page is the last id, or "" if the page has fewer than limit entries.
// Errors are wrapped by wrap; ignore the page then.
func (s *Store) List(ctx context.Context, cursor string, limit int) ([]schedule.Entry, string, error) {
	limit = max(limit, 1)
	var page []schedule.Entry
	err := s.view(ctx, "list", func(ctx context.Context, tx *sqlconn.Tx) (err error) {
		page, err = read(ctx, tx, s.text.list, s.name, cursor, limit)
		return err
	})
	if err != nil || len(page) < limit {
		return page, "", err
	}
	return page, page[len(page)-1].ID, nil
}

// read runs a query and returns the entries of its rows. It returns errors of the database; the
// entries are then incomplete or nil.
func read(ctx context.Context, tx *sqlconn.Tx, query string, args ...any) ([]schedule.Entry, error) {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	var found []schedule.Entry
	for rows.Next() {
		e, err := scan(rows)
		if err != nil {
			return nil, err
		}
		found = append(found, e)
	}
	return found, errors.Join(rows.Err(), rows.Close())
}

// Pause implements [schedule.Pauser]: it removes an entry's due time until Resume. Claims on its
// ticks stay. A paused entry stays as it is. Returns [schedule.ErrNotFound] if the entry does not
// exist. Other errors are wrapped by wrap.
func (s *Store) Pause(ctx context.Context, id string) error {
	return s.update(ctx, "pause", func(ctx context.Context, tx *sqlconn.Tx) error {
		n, err := tx.Exec(ctx, s.text.pause, s.name, id)
		if err == nil && n == 0 {
			err = schedule.ErrNotFound
		}
		return err
	})
}

// Resume implements [schedule.Pauser]: it ends an entry's pause, sets its due time to next and
// notifies the watchers; a zero next sets no due time. An entry that is not paused stays as it is,
// and no watcher is notified. Returns [schedule.ErrNotFound] if the entry does not exist. Other
// errors are wrapped by wrap.
func (s *Store) Resume(ctx context.Context, id string, next time.Time) error {
	return s.update(ctx, "resume", func(ctx context.Context, tx *sqlconn.Tx) error {
		n, err := tx.Exec(ctx, s.text.resume, s.name, id, millis(next))
		if err != nil || n > 0 {
			tx.Notify(s.topic)
			return err
		}
		if err := tx.Row(ctx, s.text.exists, s.name, id).Scan(&n); err != nil {
			return err
		}
		if n == 0 {
			return schedule.ErrNotFound
		}
		return nil
	})
}

// Unscheduled implements [schedule.Repairer]: it returns the entries that would never become due.
// They have no due time and no claim and are not paused. Errors are wrapped by wrap.
func (s *Store) Unscheduled(ctx context.Context) ([]schedule.Entry, error) {
	var found []schedule.Entry
	err := s.view(ctx, "astray", func(ctx context.Context, tx *sqlconn.Tx) (err error) {
		found, err = read(ctx, tx, s.text.astray, s.name)
		return err
	})
	return found, err
}

// Repair implements [schedule.Repairer]: it sets the due time of an entry that has lost it to next,
// and notifies the watchers. Such an entry has no due time and no claim, and is not paused. It
// reports whether it set the time: false for other entries and for ids that do not exist. Errors
// are wrapped by wrap.
func (s *Store) Repair(ctx context.Context, id string, next time.Time) (bool, error) {
	n, err := s.repair(ctx, "repair", [][]any{{id, next.UnixMilli()}})
	return n > 0, err
}

// Watch implements [schedule.Watcher]: it calls wake after changes of this schedule by any process;
// of a SQLite file, after any change. It starts a goroutine, which calls wake and ends with stop or
// Close. stop does not wait for it and may be called repeatedly.
func (s *Store) Watch(wake func()) (stop func()) {
	w := s.conn.Watch(watchPoll, s.topic)
	stopped := make(chan struct{})
	go func() {
		defer w.Close()
		for {
			select {
			case <-w.C():
				wake()
			case <-stopped:
				return
			case <-s.closing:
				return
			}
		}
	}()
	return sync.OnceFunc(func() { close(stopped) })
}
