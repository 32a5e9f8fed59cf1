package sqlconn

import (
	"context"
	"errors"
)

// Driver opens databases of one kind. The packages postgres and sqlite have one each.
type Driver interface {
	// Open checks a configuration, whose defaults are set, and returns its database. It does not
	// connect.
	Open(cfg Config) (Database, error)
}

// Database holds the operations that differ between the kinds of databases. life ends when the
// caller's Conn is closed: a call that waits for the database then returns [ErrClosed]. On
// PostgreSQL a call that found a free connection may still wait, at most for Config.Timeout, and
// run: another call has taken the connection, or the pool opens it again.
type Database interface {
	Dialect() Dialect
	// Shared reports whether other processes can use the database.
	Shared() bool
	// Update runs fn in a transaction. If it commits, Update returns the topics that fn passed to
	// Notify.
	Update(ctx, life context.Context, kind Kind, fn Func) ([]string, error)
	View(ctx, life context.Context, fn Func) error
	// Migrate runs fn, which migrates the tables of a component, as Update does.
	Migrate(ctx, life context.Context, component string, fn Func) error
	// Schema returns the quoted name of the schema of the tables, or "" if there are no schemas.
	Schema() string
	// Text returns a statement with the schema in front of the names of tables.
	Text(query string) string
	// Identity returns the path of a SQLite file, and on PostgreSQL the value of a query. It uses no
	// connection of the pool, all of which may be in transactions of callers.
	Identity(ctx context.Context, query string) (string, error)
	// Tell sends topics to other processes. It does not wait for the sending.
	Tell(topics []string)
	// Watch notifies the watchers w about changes by other processes. It blocks until ctx ends.
	Watch(ctx context.Context, w *Wakes)
	Close(ctx context.Context) error
}

// Kind is a kind of writing transaction.
type Kind uint8

// The kinds of transactions: those of [Conn.Update], [Conn.Single] and [Conn.Relaxed].
const (
	Whole Kind = iota
	Single
	Relaxed
)

// Link runs statements on one connection.
type Link interface {
	Exec(ctx context.Context, query string, args []any) (int64, error)
	Query(ctx context.Context, query string, args []any) (Rows, error)
	// Script runs statements separated by semicolons, in a transaction.
	Script(ctx context.Context, text string) error
}

// Locker is a Link outside a transaction that can run a query under advisory locks, see
// [Tx.QueryLocked].
type Locker interface {
	QueryLocked(ctx context.Context, locks []int64, query string, args []any) (Rows, error)
}

// NewTx returns a transaction or a view on l. If single is set, it refuses a second statement.
func NewTx(d Dialect, l Link, single bool) *Tx { return &Tx{dialect: d, link: l, single: single} }

// Err returns the error of the first statement that failed, or nil.
func (t *Tx) Err() error { return t.err }

// Retryable reports whether another attempt of the failed transaction can help. It is false for a
// hasty transaction that met a lock.
func (t *Tx) Retryable() bool {
	return (errors.Is(t.err, ErrUnavailable) || errors.Is(t.err, ErrConflict)) && (!t.hasty || !IsLocked(t.err))
}

// Success reports whether a statement has succeeded or has returned a row.
func (t *Tx) Success() bool { return t.success }

// Statements returns the number of statements that were started.
func (t *Tx) Statements() int { return t.count }

// Topics returns the topics that were passed to Notify.
func (t *Tx) Topics() []string { return t.topics }

// Verdict returns the result of a function that has returned err: err, or if it is nil the error of
// the first statement that failed, or nil.
func (t *Tx) Verdict(err error) error {
	if err == nil {
		return t.err
	}
	return err
}
