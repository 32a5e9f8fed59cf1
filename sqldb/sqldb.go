// Package sqldb defines the handle of a SQL database, which all SQL adapters of a program share.
//
// Packages sqldb/postgres and sqldb/sqlite open databases. A program links only the client library
// of the package that it imports.
package sqldb

import "context"

// DB is a SQL database: one pool of connections, one connection for notifications and one set of
// tables. All SQL adapters take it in their configuration. It connects at first use and replaces
// lost connections. Safe for concurrent use.
//
// Get a DB from Open of package sqldb/postgres or sqldb/sqlite. Other implementations are not
// supported.
type DB interface {
	// Migrate creates the tables of all adapters, or migrates them to the newest version. Several
	// processes may migrate at once. If the tables have the newest version, Migrate changes nothing
	// and needs no right to create tables. Without Migrate each adapter migrates its own tables at
	// first use.
	//
	// If ctx ends on PostgreSQL, Migrate returns an error and the migration continues until Close.
	Migrate(ctx context.Context) error
	// Migrations returns the SQL text that creates all tables in an empty database: a transaction for
	// psql or the shell sqlite3. Each version of each adapter has a heading. It does no I/O.
	Migrations() (string, error)
	// Close waits for running calls and closes all connections, except those of a pool that belongs
	// to the program. Close the adapters before. If ctx ends earlier, Close returns its error and
	// continues in the background. It is idempotent.
	Close(ctx context.Context) error
}
