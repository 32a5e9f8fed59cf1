// Package tx defines the type by which a program passes its own database transaction to Swarmiji. A
// task is then submitted or settled if and only if the transaction commits.
//
// Packages tx/sqltx and tx/pgxtx convert the transactions of database/sql and pgx.
package tx

import "context"

// Tx runs statements in a transaction of the caller. The caller commits it or rolls it back;
// Swarmiji does neither. Parameters are $1, $2 and so on. Swarmiji passes strings, int64 and []byte
// only. A Tx is used by one goroutine at a time.
type Tx interface {
	// Exec runs a statement and returns the number of changed rows.
	Exec(ctx context.Context, query string, args ...any) (int64, error)
	// Query runs a statement that returns rows. Close the rows before the next statement.
	Query(ctx context.Context, query string, args ...any) (Rows, error)
}

// Rows are the rows of a query.
type Rows interface {
	// Next moves to the next row. Returns false after the last one and after an error.
	Next() bool
	// Scan copies the columns of the current row into dest.
	Scan(dest ...any) error
	// Err returns the error that ended the rows, or nil. PostgreSQL reports some errors of a statement
	// only here.
	Err() error
	// Close releases the rows. It may be called repeatedly.
	Close() error
}
