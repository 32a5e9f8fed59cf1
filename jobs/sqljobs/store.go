package sqljobs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Store stores jobs in a database. Create it with [New] and end it with Close. Safe for concurrent
// use.
type Store struct {
	conn    *sqlconn.Conn
	lite    bool // the database is SQLite
	text    *texts
	closing chan struct{} // closed by end
	end     func()        // idempotent

	clock clock
	names nameCache
	sweep sweeper
	watch watchers
}

var (
	_ jobstore.Store    = (*Store)(nil)
	_ jobstore.Inserter = (*Store)(nil)
	_ jobstore.Joiner   = (*Store)(nil)
)

// Close ends the store: later calls return ErrClosed. It removes the watchers and waits for running
// calls. If ctx ends first, it returns the error of ctx. It leaves the database open. It is
// idempotent. It implements [jobstore.Store].
func (s *Store) Close(ctx context.Context) error {
	s.end()
	s.watch.close()
	return s.conn.Close(ctx)
}

// ready creates or migrates the tables at the first call, and then returns nil. Returns ErrClosed
// after Close, or the error of the migration: ErrUnavailable if ctx ended first. The next call
// tries again.
func (s *Store) ready(ctx context.Context) error {
	select {
	case <-s.closing:
		return jobstore.ErrClosed
	default:
		return wrap("tables", s.conn.Ready(ctx))
	}
}

// wrap converts an error of the database to one of the port [jobstore]. what names the failed step.
//
//   - A transaction of a caller belongs to another database, or is not a transaction:
//     ErrUnsupported.
//   - The connections are closed: ErrClosed.
//   - The database is unavailable, in conflict, full, denies access, or did not answer a commit:
//     ErrUnavailable. In the last case the transaction may have been committed.
//   - Other errors of the database: only the text is added.
//   - nil, an error of the caller's function, and an error that is ErrUnavailable or ErrClosed
//     already: unchanged.
func wrap(what string, err error) error {
	class := sqlconn.Class(err)
	switch {
	case class == nil, errors.Is(err, jobstore.ErrUnavailable), errors.Is(err, jobstore.ErrClosed):
		return err
	case errors.Is(class, sqlconn.ErrForeign):
		return fmt.Errorf("sqljobs %s: %w: %w", what, jobstore.ErrUnsupported, err)
	case errors.Is(class, sqlconn.ErrClosed):
		return fmt.Errorf("sqljobs %s: %w: %w", what, jobstore.ErrClosed, err)
	case slices.Contains([]error{
		sqlconn.ErrUnavailable, sqlconn.ErrIndeterminate, sqlconn.ErrConflict, sqlconn.ErrFull, sqlconn.ErrAccess,
	}, class):
		return fmt.Errorf("sqljobs %s: %w: %w", what, jobstore.ErrUnavailable, err)
	}
	return fmt.Errorf("sqljobs %s: %w", what, err)
}

// Update runs fn in a transaction that can write. It commits unless fn or a method of tx returned
// an error that fails the transaction. fn may run more than once. The watchers of this process are
// called in this goroutine, after the commit.
//
// It blocks until the commit. Returns the error of fn or of a method of tx, or ErrClosed after
// Close. Returns ErrUnavailable if the database does not reply until ctx ends; the changes may
// nevertheless be committed. It implements [jobstore.Store].
func (s *Store) Update(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	return s.run(ctx, s.conn.Update, use{}, fn)
}

// Single is Update for an fn that calls one method of tx, besides Now. Errors are those of Update.
// It implements [jobstore.Store].
//
// The transaction begins together with its first statement, so one statement costs two round
// trips. In one round trip the statement would be its own transaction, and an error of fn could
// not undo it.
func (s *Store) Single(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	return s.run(ctx, s.conn.Update, use{once: true}, fn)
}

// Insert stores the new jobs that draft returns for the time now, and sets their ids. draft may
// run more than once. Returns ErrBadJob, and stores nothing, if a job has an id or is invalid.
// Returns ErrClosed after Close. After ErrUnavailable, for example a lost connection, the jobs may
// nevertheless be stored: the commit is sent once. It implements [jobstore.Inserter].
//
// On PostgreSQL, one job without a message takes one statement and one round trip. That statement
// is its own transaction, and no later step can fail. Otherwise Insert uses an ordinary
// transaction.
func (s *Store) Insert(ctx context.Context, draft func(now time.Time) []*jobstore.Row) error {
	save := func(most int) func(ctx context.Context, tx jobstore.Tx) error {
		return func(ctx context.Context, tx jobstore.Tx) error {
			now, err := tx.Now(ctx)
			if err != nil {
				return err
			}
			all := draft(now)
			if len(all) > most || most == 1 && len(all) == 1 && all[0].Message != "" {
				return errMany
			}
			for _, j := range all {
				if j.ID != 0 {
					return fmt.Errorf("%w: a new job has the id %d", jobstore.ErrBadJob, j.ID)
				}
			}
			return tx.Save(ctx, all...)
		}
	}
	if !s.lite {
		if err := s.run(ctx, s.conn.Single, use{once: true}, save(1)); !errors.Is(err, errMany) {
			return err
		}
	}
	return s.run(ctx, s.conn.Update, use{once: true}, save(math.MaxInt))
}

// errMany reports that one statement cannot store the jobs.
var errMany = errors.New("sqljobs: several rows")

// View runs fn, which only reads and locks no row. Its statements share no transaction: each sees
// the changes that were committed before it. A method of tx that writes returns ErrUnsupported. fn
// may run again. Returns the error of fn, ErrUnavailable or ErrClosed. It implements
// [jobstore.Store].
func (s *Store) View(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	return s.run(ctx, s.conn.View, use{view: true}, fn)
}

// run runs fn in a transaction of do. Before, it migrates the tables at the first call, and reads
// the server's clock if the last reading is old. If one of these fails, fn does not run. Errors
// are those of fn, else the first of a method of tx, as wrap converts them.
//
// After a commit it caches the names that were read, calls the watchers in this goroutine, and may
// remove unused names, for which it blocks. After an error it caches only the names. It calls no
// watcher after a View.
func (s *Store) run(
	ctx context.Context, do func(context.Context, sqlconn.Func) error, u use, fn func(ctx context.Context, tx jobstore.Tx) error,
) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if err := s.readClock(ctx); err != nil {
		return err
	}
	var t *tx
	err := do(ctx, func(ctx context.Context, c *sqlconn.Tx) error {
		t = &tx{use: u, s: s, c: c}
		err := fn(ctx, t)
		if err == nil {
			err = t.err
		}
		return err
	})
	if err != nil {
		s.relearn(ctx, t)
		return wrap("transaction", err)
	}
	s.names.learn(t.learnt)
	if !u.view {
		s.wakeWatchers(t)
		s.sweep.count(ctx, s, t.fresh)
	}
	return nil
}

// relearn caches the names of jobs that a failed transaction t has read. A transaction that finds
// no job can fail in this way. PostgreSQL shows only committed names. SQLite may have shown names
// that were rolled back, so there relearn reads them again and waits for the database. Errors are
// dropped. It does nothing if t is nil or has read no names.
func (s *Store) relearn(ctx context.Context, t *tx) {
	if t == nil || t.learnt == nil || !t.learnt.all && len(t.learnt.names) == 0 {
		return
	}
	if !s.lite {
		s.names.learn(t.learnt)
		return
	}
	var again *learnt
	err := s.conn.View(ctx, func(ctx context.Context, c *sqlconn.Tx) (err error) {
		again, err = (&tx{use: use{view: true}, s: s, c: c}).readNames(ctx)
		return err
	})
	if err == nil { // after an error, the next transaction reads them
		s.names.learn(again)
	}
}

// readClock asks the PostgreSQL server for its time if the last answer is old, and stores it in
// s.clock. It runs before the transaction, so the transaction does not wait for the answer. On
// SQLite, or while another call asks, it does nothing. Returns ErrUnavailable or ErrClosed if the
// server does not reply.
func (s *Store) readClock(ctx context.Context) error {
	if s.lite || !s.clock.old() {
		return nil
	}
	defer s.clock.askEnded()
	return wrap("clock", s.conn.View(ctx, func(ctx context.Context, c *sqlconn.Tx) error {
		asked := time.Now()
		us, err := c.Now(ctx)
		if err == nil {
			s.clock.set(us, asked)
		}
		return err
	}))
}

// Coming returns the store's time, the first due time after it, and at most max names of jobs that
// became due after since. More reports further names. Jobs of queues do not count. A zero since,
// or one not before the present time, selects no names. The due time is zero if no job has one. On
// PostgreSQL the answer also raises the lower bound in s.clock. It takes no lock. Returns
// ErrClosed after Close, and ErrUnavailable if the database does not reply. It implements
// [jobstore.Store].
func (s *Store) Coming(ctx context.Context, since time.Time, max int) (jobstore.Coming, error) {
	var answer jobstore.Coming
	if err := s.ready(ctx); err != nil {
		return answer, err
	}
	err := s.conn.View(ctx, func(ctx context.Context, c *sqlconn.Tx) error {
		answer = jobstore.Coming{}
		var now, next, mock int64
		var args []any
		if s.lite {
			args = []any{time.Now().UnixMicro()}
		}
		if err := c.Row(ctx, s.text.times, args...).Scan(&now, &next, &mock); err != nil {
			return err
		}
		s.clock.note(now)
		answer.Now, answer.Next = moment(now), moment(next)
		if m := moment(mock); answer.Next.IsZero() || !m.IsZero() && m.Before(answer.Next) {
			answer.Next = m
		}
		if since.IsZero() || since.UnixMicro() >= now {
			return nil
		}
		rows, err := c.Query(ctx, s.text.became, since.UnixMicro(), now, max+1)
		if err != nil {
			return err
		}
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				return err
			}
			answer.Names = append(answer.Names, name)
		}
		if answer.More = len(answer.Names) > max; answer.More {
			answer.Names = answer.Names[:max]
		}
		return errors.Join(rows.Err(), rows.Close())
	})
	return answer, wrap("coming", err)
}
