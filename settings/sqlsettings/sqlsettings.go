// Package sqlsettings stores settings in a SQL database, for all processes with the same
// namespace: a SQLite file, which any number of processes of one machine share, or PostgreSQL 13
// and newer.
//
//	db, err := sqlite.Open("/var/lib/app.db", sqlite.Config{})
//	store, err := sqlsettings.New(sqlsettings.Config{DB: db})
//
// The first call creates the tables, whose names begin with "swarmiji_setting". The files in
// migrations document their columns. A value is a row, and a change is a transaction that waits
// for the disk.
package sqlsettings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/sqldb"
)

// DefaultNamespace is the namespace if Config.Namespace is "".
const DefaultNamespace = "default"

// maxNamespace is the maximum length of a namespace in bytes, the same for all adapters.
const maxNamespace = 64

// poll is the time between two looks at a SQLite file for changes by other processes.
const poll = 250 * time.Millisecond

// Config configures a [Store]. DB must be set.
type Config struct {
	// DB is the database, from Open of package sqldb/postgres or sqldb/sqlite. Adapters share it. The
	// Store does not close it. Required.
	DB sqldb.DB
	// Namespace separates programs that share a database: 1 to 64 letters, digits, '_' and '-', the
	// first a letter or a digit. All processes must use the same one. Default: "default".
	Namespace string
}

// Store is a [settings.Store] in a SQL database. Make one with [New]. Safe for concurrent use.
type Store struct {
	namespace string
	topic     string // of changes, for the watchers
	conn      *sqlconn.Conn
	life      context.Context // ends with Close
	end       context.CancelFunc
}

var _ settings.Store = (*Store)(nil)

// The statements are the same in both dialects. $1 is the namespace. SQLite may hold a text as the
// revision, which the cast makes 0.
const (
	selectOne = `SELECT key, CAST(revision AS bigint), value FROM swarmiji_setting WHERE namespace = $1 AND key = $2`
	selectAll = `SELECT key, CAST(revision AS bigint), value FROM swarmiji_setting
		WHERE namespace = $1 AND substr(key, 1, length($2)) = $2 ORDER BY key`
	next = `INSERT INTO swarmiji_setting_last AS l (namespace, last) VALUES ($1, 1)
		ON CONFLICT (namespace) DO UPDATE SET last = l.last + 1 RETURNING last`
	count  = `SELECT count(*) FROM swarmiji_setting WHERE namespace = $1`
	insert = `INSERT INTO swarmiji_setting (namespace, key, revision, value) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`
	update = `UPDATE swarmiji_setting SET revision = $3, value = $4 WHERE namespace = $1 AND key = $2 AND revision = $5`
	remove = `DELETE FROM swarmiji_setting WHERE namespace = $1 AND key = $2 AND revision = $3`
)

// New returns a Store. Its error joins all problems of the configuration. It does no I/O and starts
// nothing. The first call creates the tables.
func New(c Config) (*Store, error) {
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	var errs []error
	if !naming.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		errs = append(errs, fmt.Errorf("sqlsettings: Namespace must be 1 to %d letters, digits, '_' and '-', first a letter or digit", maxNamespace))
	}
	conn, err := sqlconn.Of(c.DB, "settings")
	if err != nil {
		errs = append(errs, fmt.Errorf("sqlsettings: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s := &Store{namespace: c.Namespace, topic: "settings " + c.Namespace, conn: conn}
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Get implements [settings.Store]: it reads the row of key, and makes the tables before if needed.
// Returns [settings.ErrNotFound] if the key has no value, [settings.ErrBad] for an invalid key or a
// row that another program has written, otherwise [settings.ErrUnavailable].
func (s *Store) Get(ctx context.Context, key string) (settings.Value, error) {
	if err := settings.CheckKey(key); err != nil {
		return settings.Value{}, err
	}
	found, err := s.read(ctx, "get", selectOne, key)
	switch {
	case err != nil:
		return settings.Value{}, err
	case len(found) == 0:
		return settings.Value{}, settings.ErrNotFound
	case !found[0].Readable():
		return settings.Value{}, fmt.Errorf("sqlsettings: %w: the value of %q was written by another program", settings.ErrBad, key)
	}
	return found[0], nil
}

// List implements [settings.Store]: it reads the values whose keys begin with prefix, sorted by
// key. It leaves out rows that another program has written. Returns [settings.ErrUnavailable] for
// errors of the database.
func (s *Store) List(ctx context.Context, prefix string) ([]settings.Value, error) {
	all, err := s.read(ctx, "list", selectAll, prefix)
	return slices.DeleteFunc(all, func(v settings.Value) bool { return !v.Readable() }), err
}

// Put implements [settings.Store]: one transaction stores data if the present revision is revision,
// and notifies the watches. It returns the new revision. It repeats a commit of unknown outcome
// until ctx ends or Close. Returns [settings.ErrConflict], [settings.ErrFull] or [settings.ErrBad].
// After [settings.ErrUnavailable] the value may have been stored.
func (s *Store) Put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error) {
	if err := settings.CheckPut(key, data); err != nil {
		return 0, err
	}
	if data == nil {
		data = []byte{} // not NULL
	}
	try := func() (uint64, error) {
		var number int64
		err := s.update(ctx, "put", func(ctx context.Context, tx *sqlconn.Tx) error {
			if err := tx.Row(ctx, next, s.namespace).Scan(&number); err != nil {
				return err
			}
			if revision != 0 {
				return changed(tx.Exec(ctx, update, s.namespace, key, number, data, int64(revision)))
			}
			if err := changed(tx.Exec(ctx, insert, s.namespace, key, number, data)); err != nil {
				return err
			}
			var n int64
			if err := tx.Row(ctx, count, s.namespace).Scan(&n); err != nil {
				return err
			}
			if n > settings.MaxKeys {
				return settings.ErrFull
			}
			return nil
		})
		return uint64(max(number, 0)), err
	}
	return settings.SettlePut(ctx, s, key, data, revision, try, s.repeats(ctx))
}

// Delete implements [settings.Store]: one transaction deletes the row of key if its revision is
// revision, and notifies the watches. It repeats a commit of unknown outcome until ctx ends or
// Close. Returns [settings.ErrConflict] or [settings.ErrBad]. After [settings.ErrUnavailable] the
// value may have been deleted.
func (s *Store) Delete(ctx context.Context, key string, revision uint64) error {
	if err := settings.CheckKey(key); err != nil {
		return err
	}
	try := func() error {
		return s.update(ctx, "delete", func(ctx context.Context, tx *sqlconn.Tx) error {
			return changed(tx.Exec(ctx, remove, s.namespace, key, int64(revision)))
		})
	}
	return settings.SettleDelete(ctx, s, key, try, s.repeats(ctx))
}

// Watch implements [settings.Store]: it starts a goroutine that calls changed after each
// notification of a change, until stop or Close.
func (s *Store) Watch(changed func()) (stop func()) {
	ctx, cancel := context.WithCancel(s.life)
	w := s.conn.Watch(poll, s.topic)
	go func() {
		for {
			select {
			case <-w.C():
				changed()
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		w.Close()
	}
}

// Close implements [settings.Store]: it ends waiting calls and watches, and leaves the database
// open. Returns ctx's error if ctx ends first.
func (s *Store) Close(ctx context.Context) error {
	s.end()
	return s.conn.Close(ctx)
}

// read makes the tables, runs query with the namespace and arg, and returns the values of its rows.
// A revision below 0 becomes 0. It waits for the database. Returns the errors of wrap, with op as
// the name of the operation.
func (s *Store) read(ctx context.Context, op, query, arg string) ([]settings.Value, error) {
	var all []settings.Value
	err := s.wrap(op, s.conn.Ready(ctx))
	if err != nil {
		return nil, err
	}
	err = s.conn.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		all = nil
		rows, err := tx.Query(ctx, query, s.namespace, arg)
		if err != nil {
			return err
		}
		for rows.Next() {
			var v settings.Value
			var revision int64
			if err := rows.Scan(&v.Key, &revision, &v.Data); err != nil {
				return errors.Join(err, rows.Close())
			}
			v.Revision = uint64(max(revision, 0))
			all = append(all, v)
		}
		return errors.Join(rows.Err(), rows.Close())
	})
	if err != nil {
		return nil, s.wrap(op, err)
	}
	return all, nil
}

// update makes the tables and runs fn in a transaction, once, that notifies the watches when it
// commits. It waits for the database. Returns the errors of wrap, with op as the name of the
// operation.
func (s *Store) update(ctx context.Context, op string, fn sqlconn.Func) error {
	if err := s.wrap(op, s.conn.Ready(ctx)); err != nil {
		return err
	}
	return s.wrap(op, s.conn.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		tx.Notify(s.topic)
		return fn(ctx, tx)
	}))
}

// changed takes the result of a statement: the number of changed rows and its error. It returns
// err, or [settings.ErrConflict] if err is nil and no row was changed.
func changed(n int64, err error) error {
	if err == nil && n == 0 {
		return settings.ErrConflict
	}
	return err
}

// wrap adds [settings.ErrUnavailable] and op, the name of the operation, to an error of the
// database. It returns nil, ErrConflict and ErrFull unchanged.
func (s *Store) wrap(op string, err error) error {
	if err == nil || errors.Is(err, settings.ErrConflict) || errors.Is(err, settings.ErrFull) {
		return err
	}
	return fmt.Errorf("sqlsettings %s: %w: %w", op, settings.ErrUnavailable, err)
}

// repeats returns a function for [settings.SettlePut]. For a commit of unknown outcome the function
// waits and returns true. It returns false for another error, and if ctx or the store ends first.
func (s *Store) repeats(ctx context.Context) func(error, int) bool {
	return func(err error, attempt int) bool {
		return errors.Is(err, sqlconn.ErrIndeterminate) && wake.SleepOr(ctx, s.life.Done(), s.conn.Interval(attempt))
	}
}
