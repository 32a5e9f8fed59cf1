// Package pgxtx converts transactions of pgx for Swarmiji.
package pgxtx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/swarmiji/swarmiji/tx"
)

// Conn is implemented by pgx.Tx, and by *pgx.Conn inside of a transaction.
type Conn interface {
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
}

// Wrap returns a Tx that runs its statements on c. It does not close c. A nil c panics at the first
// statement.
func Wrap(c Conn) tx.Tx { return conn{c} }

type conn struct{ c Conn }

// Exec implements [tx.Tx]. Its errors are those of pgx.
func (c conn) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := c.c.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

// Query implements [tx.Tx]. Its errors are those of pgx.
func (c conn) Query(ctx context.Context, query string, args ...any) (tx.Rows, error) {
	r, err := c.c.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return rows{r}, nil
}

// rows gives pgx.Rows a Close with an error.
type rows struct{ pgx.Rows }

// Close implements [tx.Rows]. It returns nil.
func (r rows) Close() error {
	r.Rows.Close()
	return nil
}
