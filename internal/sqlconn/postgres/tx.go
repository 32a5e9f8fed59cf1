package postgres

import (
	"cmp"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// pgLink runs statements outside a transaction.
type pgLink struct {
	conn *pgx.Conn
	db   *postgres
}

// link returns a pgLink that runs statements on conn.
func (p *postgres) link(conn *pgx.Conn) pgLink { return pgLink{conn, p} }

// Exec implements [sqlconn.Link]: it runs a statement outside a transaction and returns the number
// of changed rows. Returns the client's error, not classified.
func (l pgLink) Exec(ctx context.Context, query string, args []any) (int64, error) {
	return l.exec(ctx, l.db.config.local, query, args)
}

// Query implements [sqlconn.Link]: it runs a statement outside a transaction and returns its rows.
// Returns the client's error, not classified.
func (l pgLink) Query(ctx context.Context, query string, args []any) (sqlconn.Rows, error) {
	rows, err := l.query(ctx, l.db.config.local, query, args)
	if err != nil {
		return nil, err // not a nil *pgRows in an interface
	}
	return rows, nil
}

// lock waits for advisory locks: $1 numbers. They last until the end of the transaction.
const lock = "select pg_advisory_xact_lock(n) from unnest($1::bigint[]) as l(n)"

// QueryLocked implements [sqlconn.Locker]. After an error it rolls back the transaction, or closes
// the connection. Returns the client's error, not classified.
func (l pgLink) QueryLocked(ctx context.Context, locks []int64, query string, args []any) (sqlconn.Rows, error) {
	b := &pgx.Batch{}
	begin := append([]string{"begin isolation level read committed"}, l.db.config.local...)
	for _, text := range begin {
		b.Queue(text)
	}
	b.Queue(lock, locks)
	b.Queue(l.db.Text(query), args...)
	b.Queue("commit")
	answers := l.conn.SendBatch(ctx, b)
	end := func() error {
		err := answers.Close()
		if err != nil {
			(&pgTx{pgLink: l}).rollback(ctx)
		}
		return err
	}
	var rows pgx.Rows
	var err error
	for range len(begin) + 1 {
		if _, err = answers.Exec(); err != nil {
			break
		}
	}
	if err == nil {
		if rows, err = answers.Query(); err == nil {
			return &pgRows{Rows: rows, after: end}, nil
		}
	}
	_ = end() // the first error is returned
	return nil, err
}

// Script implements [sqlconn.Link]. It always returns ErrRefused, since a script needs a
// transaction.
func (pgLink) Script(context.Context, string) error {
	return sqlconn.Failure(sqlconn.ErrRefused, errors.New("a script outside of a transaction"))
}

// exec runs a statement and returns the number of changed rows. The statements of first come before
// it in the same round trip, and in the same transaction. It waits for the server and returns the
// client's error.
func (l pgLink) exec(ctx context.Context, first []string, query string, args []any) (int64, error) {
	query = l.db.Text(query)
	if len(first) == 0 {
		tag, err := l.conn.Exec(ctx, query, args...)
		return tag.RowsAffected(), err
	}
	answers, err := l.send(ctx, first, query, args)
	var tag pgconn.CommandTag
	if err == nil {
		tag, err = answers.Exec()
	}
	if e := answers.Close(); err == nil {
		err = e
	}
	return tag.RowsAffected(), err
}

// query runs a statement that returns rows. The statements of first come before it in the same
// round trip, and in the same transaction. It waits for the server and returns the client's error.
func (l pgLink) query(ctx context.Context, first []string, query string, args []any) (*pgRows, error) {
	query = l.db.Text(query)
	if len(first) == 0 {
		rows, err := l.conn.Query(ctx, query, args...)
		return &pgRows{Rows: rows}, err
	}
	answers, err := l.send(ctx, first, query, args)
	if err == nil {
		var rows pgx.Rows
		if rows, err = answers.Query(); err == nil {
			return &pgRows{Rows: rows, after: answers.Close}, nil
		}
	}
	_ = answers.Close() // the first error is returned
	return nil, err
}

// send sends the statements of first and a query. It reads the answers to first. The caller reads
// the next answer, and closes the results also after an error.
func (l pgLink) send(ctx context.Context, first []string, query string, args []any) (pgx.BatchResults, error) {
	b := &pgx.Batch{}
	for _, f := range first {
		b.Queue(f)
	}
	b.Queue(query, args...)
	answers := l.conn.SendBatch(ctx, b)
	for range first {
		if _, err := answers.Exec(); err != nil {
			return answers, err
		}
	}
	return answers, nil
}

// pgTx runs statements in a transaction. The transaction begins with the first statement: both are
// sent in one round trip.
type pgTx struct {
	pgLink
	begun bool
	rows  *pgRows // of the last query, if they are open
}

// Exec implements [sqlconn.Link]: it closes open rows, begins the transaction if necessary, runs a
// statement and returns the number of changed rows.
func (l *pgTx) Exec(ctx context.Context, query string, args []any) (int64, error) {
	l.closeRows()
	return l.exec(ctx, l.begin(), query, args)
}

// Query implements [sqlconn.Link]: it closes open rows, begins the transaction if necessary, runs a
// statement and returns its rows. The next statement closes them.
func (l *pgTx) Query(ctx context.Context, query string, args []any) (sqlconn.Rows, error) {
	l.closeRows()
	rows, err := l.query(ctx, l.begin(), query, args)
	if err != nil {
		return nil, err
	}
	l.rows = rows
	return rows, nil
}

// begin returns the statements that begin the transaction and records that it has begun. It returns
// none if the transaction has begun before. A transaction that waited for a lock must see the
// holder's changes, whatever the database's default.
func (l *pgTx) begin() []string {
	if l.begun {
		return nil
	}
	l.begun = true
	return append([]string{"begin isolation level read committed"}, l.db.config.local...)
}

// Script implements [sqlconn.Link]: it closes open rows and runs statements separated by
// semicolons. It does not begin the transaction: call it after another statement.
func (l *pgTx) Script(ctx context.Context, text string) error {
	l.closeRows()
	_, err := l.conn.PgConn().Exec(ctx, text).ReadAll()
	return err
}

// closeRows closes the rows of the last query if they are open. It drops their error, which the
// next statement returns again.
func (l *pgTx) closeRows() {
	if l.rows != nil {
		_ = l.rows.Close() // the next statement returns the same error
		l.rows = nil
	}
}

// rollback rolls back the transaction. If this fails, it closes the connection, which also ends the
// transaction.
func (l *pgTx) rollback(ctx context.Context) {
	if _, err := l.conn.Exec(ctx, "rollback"); err != nil {
		_ = l.conn.Close(ctx)
	}
}

// commit commits the transaction and waits for the server. Returns ErrIndeterminate if the server's
// answer is missing, and a retryable if a repetition can help. Returns ErrRefused if the server has
// rolled back because a statement had failed.
//
// The client can report that an error came before anything was sent. This report is not reliable. A
// connection that is lost during the wait for the answer is sometimes reported as closed before.
func (l *pgTx) commit(ctx context.Context) error {
	if err := unsent(ctx, l.conn); err != nil {
		return &retryable{err, true}
	}
	tag, err := l.conn.Exec(ctx, "commit")
	if err == nil {
		if tag.String() == "ROLLBACK" {
			return sqlconn.Failure(sqlconn.ErrRefused, errors.New("a statement had failed, and the server rolled back"))
		}
		return nil
	}
	if !answered(err) {
		return sqlconn.Failure(sqlconn.ErrIndeterminate, err)
	}
	if err = sqlconn.Classify(err); isTransient(err) {
		return &retryable{err, true}
	}
	return err
}

// unsent returns an error if nothing can be sent: the connection is lost or ctx has ended.
// Otherwise it returns nil.
func unsent(ctx context.Context, conn *pgx.Conn) error {
	if conn.IsClosed() {
		return sqlconn.Failure(sqlconn.ErrUnavailable, errors.New("the connection was lost"))
	}
	if ctx.Err() != nil {
		return sqlconn.Ended(ctx, nil)
	}
	return nil
}

// answered reports whether err is an answer of the server, which means that nothing was committed.
func answered(err error) bool {
	_, ok := errors.AsType[*pgconn.PgError](err)
	return ok && !isFatal(err)
}

// pgRows are the client's rows. Close also calls after.
type pgRows struct {
	pgx.Rows
	after func() error
	err   error // of after
}

// Close implements [sqlconn.Rows]. It also ends the batch in which the rows were read. Returns the
// first error of the rows or of the batch. It is idempotent.
func (r *pgRows) Close() error {
	r.Rows.Close()
	if r.after != nil {
		r.err = r.after()
		r.after = nil
	}
	return r.Err()
}

// Err implements [sqlconn.Rows]. It returns the first error of the rows or of their batch.
func (r *pgRows) Err() error { return cmp.Or(r.Rows.Err(), r.err) }

// Next implements [sqlconn.Rows]. After the last row it closes the rows.
func (r *pgRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	_ = r.Close() // Err returns the error
	return false
}

// isFatal reports whether an answer of PostgreSQL ended the session. The running statement may then
// have taken effect.
func isFatal(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.SeverityUnlocalized == "FATAL" || e.SeverityUnlocalized == "PANIC" ||
		e.SeverityUnlocalized == "" && (e.Severity == "FATAL" || e.Severity == "PANIC"))
}
