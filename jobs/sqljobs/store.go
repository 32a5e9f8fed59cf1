package sqljobs

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

//go:embed migrations
var migrations embed.FS

// Store keeps jobs in a database. Make one with [New], and end it with Close. All methods may be called from any goroutine.
type Store struct {
	conn    *sqlconn.Conn
	lite    bool
	text    *texts
	closing chan struct{}
	end     func()

	migrated  atomic.Bool
	migrating sync.Mutex

	clock clock
	names nameCache
	sweep sweeper
	watch watchers
}

var (
	_ jobstore.Store    = (*Store)(nil)
	_ jobstore.Inserter = (*Store)(nil)
)

// Close implements [jobstore.Store].
func (s *Store) Close(ctx context.Context) error {
	s.end()
	s.watch.close()
	return s.conn.Close(ctx)
}

// ready makes the tables, once, or says why nothing may be done.
func (s *Store) ready(ctx context.Context) error {
	select {
	case <-s.closing:
		return jobstore.ErrClosed
	default:
	}
	if s.migrated.Load() {
		return nil
	}
	s.migrating.Lock() // those who come at the same moment would wait for each other in the database
	defer s.migrating.Unlock()
	if s.migrated.Load() {
		return nil
	}
	files, err := fs.Sub(migrations, "migrations")
	if err == nil {
		err = s.conn.Migrate(ctx, "jobs", files)
	}
	if err != nil {
		return wrap("tables", err)
	}
	s.migrated.Store(true)
	return nil
}

// wrap puts the port's error beside the database's. An error of a caller's function stays as it is.
func wrap(what string, err error) error {
	class := sqlconn.Class(err)
	switch {
	case class == nil, errors.Is(err, jobstore.ErrUnavailable), errors.Is(err, jobstore.ErrClosed):
		return err
	case errors.Is(class, sqlconn.ErrClosed):
		return fmt.Errorf("sqljobs %s: %w: %w", what, jobstore.ErrClosed, err)
	case slices.Contains([]error{
		sqlconn.ErrUnavailable, sqlconn.ErrIndeterminate, sqlconn.ErrConflict, sqlconn.ErrFull, sqlconn.ErrAccess,
	}, class):
		return fmt.Errorf("sqljobs %s: %w: %w", what, jobstore.ErrUnavailable, err)
	}
	return fmt.Errorf("sqljobs %s: %w", what, err)
}

// Update implements [jobstore.Store].
func (s *Store) Update(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	return s.run(ctx, s.conn.Update, false, fn)
}

// Single implements [jobstore.Store]. It is Update, which costs a server two trips for one statement: the transaction begins with it. In one trip the
// statement would be its own transaction, which an error of fn could not undo.
func (s *Store) Single(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	return s.run(ctx, s.conn.Update, false, fn)
}

// Insert implements [jobstore.Inserter]. On PostgreSQL one job is one statement and one trip: the statement is a transaction of its own, and nothing comes
// after it that could want it undone.
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
		if err := s.run(ctx, s.conn.Single, false, save(1)); !errors.Is(err, errMany) {
			return err
		}
	}
	return s.run(ctx, s.conn.Update, false, save(math.MaxInt))
}

// errMany says that jobs are not saved by one statement.
var errMany = errors.New("sqljobs: several rows")

// View implements [jobstore.Store].
func (s *Store) View(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	return s.run(ctx, s.conn.View, true, fn)
}

// run runs fn, and does what follows a commit.
func (s *Store) run(
	ctx context.Context, do func(context.Context, sqlconn.Func) error, view bool, fn func(ctx context.Context, tx jobstore.Tx) error,
) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if err := s.look(ctx); err != nil {
		return err
	}
	var t *tx
	err := do(ctx, func(ctx context.Context, c *sqlconn.Tx) error {
		t = &tx{s: s, c: c, view: view}
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
	if !view {
		s.woken(t)
		s.sweep.count(ctx, s, t.fresh)
	}
	return nil
}

// relearn remembers names although the transaction has failed, as one does that has found no job. PostgreSQL shows what is committed; SQLite may have
// shown what is undone, and is asked again.
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
		again, err = (&tx{s: s, c: c, view: true}).readNames(ctx)
		return err
	})
	if err == nil { // else the next one reads them
		s.names.learn(again)
	}
}

// look asks a server for its time if the last answer is old, before a transaction has begun that would wait for it.
func (s *Store) look(ctx context.Context) error {
	if s.lite || !s.clock.old() {
		return nil
	}
	defer s.clock.looked()
	return wrap("clock", s.conn.View(ctx, func(ctx context.Context, c *sqlconn.Tx) error {
		asked := time.Now()
		us, err := c.Now(ctx)
		if err == nil {
			s.clock.set(us, asked)
		}
		return err
	}))
}

// Coming implements [jobstore.Store].
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
