package sqltest

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" of database/sql

	"github.com/swarmiji/swarmiji/tx"
	"github.com/swarmiji/swarmiji/tx/pgxtx"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

// Transaction is a transaction of a test's own connection, as the program of a user has.
type Transaction struct {
	Tx       tx.Tx
	Commit   func() error
	Rollback func() error
}

// Begin begins a transaction with the database's usual library: pgx, or database/sql for a SQLite
// file. On SQLite it holds the file's write lock. It is rolled back at the end of the test. Begin
// fails t on an error.
func Begin(t testing.TB, url string) Transaction {
	t.Helper()
	if strings.HasPrefix(url, "sqlite:") {
		return BeginSQL(t, url)
	}
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, ofClient(url))
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close(ctx) }) // rolls back
	own, err := conn.Begin(ctx)
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	return Transaction{
		Tx: pgxtx.Wrap(own), Commit: func() error { return own.Commit(ctx) }, Rollback: func() error { return own.Rollback(ctx) },
	}
}

// ofClient returns the URL with pgx's own parameters in place of those that only package sqldb
// knows. The client then finds the tables by its search path, and prepares no statements through
// PgBouncer.
func ofClient(url string) string {
	url, _, _ = strings.Cut(url, "&listen_url=")
	return strings.NewReplacer("&schema=", "&search_path=", "&pgbouncer=true", "&default_query_exec_mode=exec").Replace(url)
}

// BeginSQL begins a transaction with database/sql, for both kinds of databases. It is rolled back
// at the end of the test. BeginSQL fails t on an error.
func BeginSQL(t testing.TB, url string) Transaction {
	t.Helper()
	own, err := OpenSQL(t, url).BeginTx(context.WithoutCancel(t.Context()), nil)
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	t.Cleanup(func() { _ = own.Rollback() }) // an error says that it has ended
	return Transaction{Tx: sqltx.Wrap(own), Commit: own.Commit, Rollback: own.Rollback}
}

// OpenSQL opens a database with database/sql, as the program of a user does. Transactions on SQLite
// begin with the write lock. The database is closed at the end of the test. OpenSQL fails t on an
// error.
func OpenSQL(t testing.TB, url string) *sql.DB {
	t.Helper()
	driver, source := "pgx", ofClient(url)
	if file, ok := strings.CutPrefix(url, "sqlite:"); ok {
		driver, source = "sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(5000)"
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
