package sqlconn

import (
	"context"
	"errors"
)

// Tx is a transaction, or a view: what a function that was given to a [Conn] speaks to the database through. It ends with the
// function, and only one goroutine uses it at a time.
type Tx struct {
	dialect Dialect
	link    link
	err     error // of the first statement that failed; dooms the transaction
	single  bool  // one statement and no more
	count   int
	topics  []string
}

// link runs statements on one connection.
type link interface {
	exec(ctx context.Context, query string, args []any) (int64, error)
	query(ctx context.Context, query string, args []any) (Rows, error)
}

// Rows are the rows of an answer. They are closed before the next statement; Close may be called twice, and after Next has
// returned false it need not be.
type Rows interface {
	// Next goes to the next row, and reports whether there is one. Afterwards Err tells whether it was the end.
	Next() bool
	// Scan copies the columns: into *int64, *int, *string, *[]byte, *bool, *float64, and pointers to these, which NULL makes nil.
	Scan(dest ...any) error
	Err() error
	Close() error
}

// Row is an answer of at most one row that counts.
type Row struct {
	rows Rows
	err  error
}

// Scan copies the columns of the first row, and closes the answer. Without a row it is [ErrNoRows].
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

// errSingle is a second statement in [Conn.Single].
var errSingle = errors.New("sqlconn: a second statement in Single")

// Dialect is the database's.
func (t *Tx) Dialect() Dialect { return t.dialect }

// Exec runs a statement and returns how many rows it changed.
func (t *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	if err := t.begin(ctx); err != nil {
		return 0, err
	}
	n, err := t.link.exec(ctx, query, args)
	return n, t.fail(err)
}

// Query runs a statement and returns its rows.
func (t *Tx) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	rows, err := t.link.query(ctx, query, args)
	if err != nil {
		return nil, t.fail(err)
	}
	return &txRows{rows, t}, nil
}

// Row runs a statement of whose rows the first counts.
func (t *Tx) Row(ctx context.Context, query string, args ...any) Row {
	rows, err := t.Query(ctx, query, args...)
	return Row{rows, err}
}

// Now asks for the database's time, in microseconds since 1970; see [Dialect.Now].
func (t *Tx) Now(ctx context.Context) (int64, error) {
	var us int64
	err := t.Row(ctx, "SELECT "+t.dialect.Now()).Scan(&us)
	return us, err
}

// Notify wakes the watchers of a topic, in all processes, when the transaction has been committed. See [Conn.Watch].
func (t *Tx) Notify(topic string) { t.topics = append(t.topics, topic) }

// begin is called before each statement.
func (t *Tx) begin(ctx context.Context) error {
	switch {
	case t.err != nil:
		return t.err
	case ctx.Err() != nil:
		return t.fail(ended(ctx, nil))
	case t.single && t.count > 0:
		return t.fail(&failure{ErrRefused, errSingle})
	}
	t.count++
	return nil
}

// fail notes the error of a statement, with its class.
func (t *Tx) fail(err error) error {
	err = classify(err)
	if err != nil && t.err == nil && !errors.Is(err, ErrNoRows) {
		t.err = err
	}
	return err
}

// verdict is the error of a function that has returned err.
func (t *Tx) verdict(err error) error {
	if err == nil {
		return t.err
	}
	return err
}

// txRows are rows whose errors doom the transaction.
type txRows struct {
	Rows
	tx *Tx
}

func (r *txRows) Scan(dest ...any) error { return r.tx.fail(r.Rows.Scan(dest...)) }
func (r *txRows) Err() error             { return r.tx.fail(r.Rows.Err()) }
func (r *txRows) Close() error           { return r.tx.fail(r.Rows.Close()) }
