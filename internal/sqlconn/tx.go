package sqlconn

import (
	"context"
	"errors"
)

// Tx is a transaction or a view. A function that was passed to a [Conn] uses it to run statements.
// It is invalid after the function returns. Not safe for concurrent use.
type Tx struct {
	dialect Dialect
	link    Link
	err     error // first error of a statement; makes the transaction fail
	single  bool  // allows only one statement
	count   int
	success bool // a statement has succeeded, or has returned a row
	hasty   bool // see Hasty
	topics  []string
}

// Rows are the rows of a query. Close them before the next statement. After Next has returned
// false, Close is optional. Close is idempotent.
type Rows interface {
	// Next moves to the next row and reports whether it exists. After false, Err returns the error, or
	// nil at the end of the rows.
	Next() bool
	// Scan copies the columns to *int64, *int, *string, *[]byte, *bool, *float64, or pointers to
	// these, which NULL sets to nil.
	Scan(dest ...any) error
	Err() error
	// Close ends the query. It returns no error if Err has returned one, so that a caller may join
	// both.
	Close() error
}

// Row is the first row of a query.
type Row struct {
	rows Rows
	err  error
}

// Scan copies the columns of the first row and closes the query. Returns [ErrNoRows] for an empty
// result, the error of the query, and that of a value that does not fit.
func (r Row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	err := ErrNoRows
	if r.rows.Next() {
		err = r.rows.Scan(dest...)
	} else if e := r.rows.Err(); e != nil {
		err = e
	}
	if e := r.rows.Close(); err == nil {
		err = e
	}
	return err
}

// errSingle reports a second statement in [Conn.Single].
var errSingle = errors.New("sqlconn: a second statement in Single")

// errNoLocks reports a call of QueryLocked in another transaction.
var errNoLocks = errors.New("sqlconn: advisory locks in a transaction that has none")

// Dialect returns the kind of the database.
func (t *Tx) Dialect() Dialect { return t.dialect }

// Exec runs a statement and returns the number of rows that it changed. It waits for the database.
// Returns the errors of begin and of the statement, with their class. An error makes the
// transaction fail.
func (t *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	if err := t.begin(ctx); err != nil {
		return 0, err
	}
	n, err := t.link.Exec(ctx, query, args)
	t.success = t.success || err == nil
	return n, t.fail(err)
}

// Query runs a statement and returns its rows, which the caller must close before the next
// statement. It waits for the database. Returns the errors of begin and of the statement, with
// their class. An error makes the transaction fail.
func (t *Tx) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	rows, err := t.link.Query(ctx, query, args)
	if err != nil {
		return nil, t.fail(err)
	}
	return &txRows{Rows: rows, tx: t}, nil
}

// QueryLocked is Query in a transaction of its own, for a function of [Conn.Single] or
// [Conn.Relaxed] on PostgreSQL. The transaction first waits for the advisory locks of the numbers,
// one after the other. The query sees all changes that were committed before it got the locks. All
// this is one round trip: no lock lasts until a client continues.
func (t *Tx) QueryLocked(ctx context.Context, locks []int64, query string, args ...any) (Rows, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	l, ok := t.link.(Locker)
	if !ok {
		return nil, t.fail(&failure{ErrRefused, errNoLocks})
	}
	rows, err := l.QueryLocked(ctx, locks, query, args)
	if err != nil {
		return nil, t.fail(err)
	}
	return &txRows{Rows: rows, tx: t}, nil
}

// Row runs a query and returns its first row. An error is returned by [Row.Scan].
func (t *Tx) Row(ctx context.Context, query string, args ...any) Row {
	rows, err := t.Query(ctx, query, args...)
	return Row{rows, err}
}

// Now returns the database's time, in microseconds since 1970, see [Dialect.Now].
func (t *Tx) Now(ctx context.Context) (int64, error) {
	var us int64
	err := t.Row(ctx, "SELECT "+t.dialect.Now()).Scan(&us)
	return us, err
}

// Notify wakes the watchers of a topic, in all processes, after the transaction is committed. See
// [Conn.Watch].
func (t *Tx) Notify(topic string) { t.topics = append(t.topics, topic) }

// Hasty sets whether the transaction fails, and is not repeated, if another transaction holds a
// lock for too long: by default 2 s on PostgreSQL. [IsLocked] finds the error.
func (t *Tx) Hasty(on bool) { t.hasty = on }

// begin counts a statement before it runs. Returns an error, which makes the transaction fail, if
// the transaction has failed, ctx has ended, or a second statement is not allowed.
func (t *Tx) begin(ctx context.Context) error {
	switch {
	case t.err != nil:
		return t.err
	case ctx.Err() != nil:
		return t.fail(Ended(ctx, nil))
	case t.single && t.count > 0:
		return t.fail(&failure{ErrRefused, errSingle})
	}
	t.count++
	return nil
}

// fail adds the class to the error of a statement and returns it; nil stays nil. It stores the
// first error except ErrNoRows, which makes the transaction fail.
func (t *Tx) fail(err error) error {
	err = Classify(err)
	if err != nil && t.err == nil && !errors.Is(err, ErrNoRows) {
		t.err = err
	}
	return err
}

// txRows are rows whose errors make the transaction fail.
type txRows struct {
	Rows
	tx     *Tx
	failed bool // Err has returned an error
}

// Next moves to the next row and reports whether it exists. Unless the first statement has failed,
// it records that a statement has succeeded.
func (r *txRows) Next() bool {
	next := r.Rows.Next()
	r.tx.success = r.tx.success || next || r.Rows.Err() == nil
	return next
}

// Scan copies the columns of the row. Its error makes the transaction fail.
func (r *txRows) Scan(dest ...any) error { return r.tx.fail(r.Rows.Scan(dest...)) }

// Err returns the error that ended the rows, with its class. The error makes the transaction fail.
func (r *txRows) Err() error {
	err := r.tx.fail(r.Rows.Err())
	r.failed = r.failed || err != nil
	return err
}

// Close ends the query. It returns no error if Err has returned one. Its error makes the
// transaction fail.
func (r *txRows) Close() error {
	if err := r.tx.fail(r.Rows.Close()); !r.failed {
		return err
	}
	return nil
}
