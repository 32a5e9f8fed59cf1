package sqlconn

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// pgLink runs statements outside of a transaction.
type pgLink struct{ conn *pgx.Conn }

// exec implements link.
func (l pgLink) exec(ctx context.Context, query string, args []any) (int64, error) {
	tag, err := l.conn.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

// query implements link.
func (l pgLink) query(ctx context.Context, query string, args []any) (Rows, error) {
	rows, err := l.conn.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return &pgRows{Rows: rows}, nil
}

// pgTx runs statements in a transaction, which begins with the first: both are sent at once.
type pgTx struct {
	conn  *pgx.Conn
	begun bool
	rows  *pgRows // of the last query, if they are open
}

// exec implements link.
func (l *pgTx) exec(ctx context.Context, query string, args []any) (int64, error) {
	l.closeRows()
	if l.begun {
		return pgLink{l.conn}.exec(ctx, query, args)
	}
	answers := l.begin(ctx, query, args)
	_, err := answers.Exec()
	var tag pgconn.CommandTag
	if err == nil {
		tag, err = answers.Exec()
	}
	if e := answers.Close(); err == nil {
		err = e
	}
	return tag.RowsAffected(), err
}

// query implements link.
func (l *pgTx) query(ctx context.Context, query string, args []any) (Rows, error) {
	l.closeRows()
	if l.begun {
		rows, err := l.conn.Query(ctx, query, args...)
		if err != nil {
			return nil, err
		}
		l.rows = &pgRows{Rows: rows}
		return l.rows, nil
	}
	answers := l.begin(ctx, query, args)
	_, err := answers.Exec()
	if err == nil {
		var rows pgx.Rows
		if rows, err = answers.Query(); err == nil {
			l.rows = &pgRows{Rows: rows, after: answers.Close}
			return l.rows, nil
		}
	}
	_ = answers.Close() // the first error is the one that counts
	return nil, err
}

func (l *pgTx) begin(ctx context.Context, query string, args []any) pgx.BatchResults {
	l.begun = true
	b := &pgx.Batch{}
	// Whoever has waited for a lock must see what its holder wrote, whatever the database's default.
	b.Queue("begin isolation level read committed")
	b.Queue(query, args...)
	return l.conn.SendBatch(ctx, b)
}

func (l *pgTx) closeRows() {
	if l.rows != nil {
		_ = l.rows.Close() // its error is that of the next statement as well
		l.rows = nil
	}
}

// rollback ends the transaction. Where that fails the connection ends, and the transaction with it.
func (l *pgTx) rollback(ctx context.Context) {
	if _, err := l.conn.Exec(ctx, "rollback"); err != nil {
		_ = l.conn.Close(ctx)
	}
}

// commit ends the transaction for good. Only a commit without an answer leaves in doubt what became of it. The client's own
// word that an error came before anything was sent cannot be believed: a connection that is lost while it waits for the answer
// is reported, at times, as one that was closed before.
func (l *pgTx) commit(ctx context.Context) error {
	if err := unsent(ctx, l.conn); err != nil {
		return &retryable{err}
	}
	tag, err := l.conn.Exec(ctx, "commit")
	if err == nil {
		if tag.String() == "ROLLBACK" {
			return &failure{ErrRefused, errors.New("a statement had failed, and the server rolled back")}
		}
		return nil
	}
	if !answered(err) {
		return &failure{ErrIndeterminate, err}
	}
	err = classify(err)
	return again(&Tx{err: err}, err)
}

// unsent returns why nothing can be sent, or nil.
func unsent(ctx context.Context, conn *pgx.Conn) error {
	if conn.IsClosed() {
		return &failure{ErrUnavailable, errors.New("the connection was lost")}
	}
	if ctx.Err() != nil {
		return ended(ctx, nil)
	}
	return nil
}

// answered reports whether an error is the server's answer, and so tells that nothing was committed.
func answered(err error) bool {
	_, ok := errors.AsType[*pgconn.PgError](err)
	return ok && !isFatal(err)
}

// pgRows are the client's rows with what has to be closed after them.
type pgRows struct {
	pgx.Rows
	after func() error
}

// Close implements Rows.
func (r *pgRows) Close() error {
	r.Rows.Close()
	err := r.Rows.Err()
	if r.after != nil {
		if e := r.after(); err == nil {
			err = e
		}
		r.after = nil
	}
	return err
}

// Next implements Rows. At the end it closes, since nobody needs to.
func (r *pgRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	_ = r.Close() // Err tells
	return false
}
