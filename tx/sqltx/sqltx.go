// Package sqltx converts transactions of database/sql for Swarmiji.
package sqltx

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/swarmiji/swarmiji/tx"
)

// Conn is implemented by *sql.Tx, and by *sql.Conn inside of a transaction. Of other libraries,
// bun.Tx, the ConnPool of a transaction of gorm, and the transaction clients of ent (with the
// feature sql/execquery) implement it. The driver must accept parameters of the form $1.
type Conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Wrap returns a Tx that runs its statements on c. It does not close c. A nil c panics at the first
// statement.
func Wrap(c Conn) tx.Tx { return conn{c} }

type conn struct{ c Conn }

// Exec implements [tx.Tx]. Its errors are those of the driver.
func (c conn) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	r, err := c.c.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	n, err := r.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("sqltx: the driver does not count changed rows: %w", err)
	}
	return n, nil
}

// Query implements [tx.Tx]. Its errors are those of the driver.
func (c conn) Query(ctx context.Context, query string, args ...any) (tx.Rows, error) {
	//nolint:rowserrcheck // the caller does both
	rows, err := c.c.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err // not a nil *sql.Rows in an interface
	}
	return rows, nil
}
