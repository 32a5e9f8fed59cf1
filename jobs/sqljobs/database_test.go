package sqljobs_test

import (
	"context"
	"testing"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// ownDatabase makes an empty database of PostgreSQL for one test, and returns its URL.
func ownDatabase(t testing.TB) string {
	t.Helper()
	dsn, err := testserver.RequirePostgres(t).Database(t.Context(), testserver.Namespace())
	if err != nil {
		t.Fatal(err)
	}
	return dsn
}

// watching returns a connection beside those of the stores under test.
func watching(t testing.TB, dsn string) *sqlconn.Conn {
	t.Helper()
	conn, err := sqlconn.New(sqlconn.Config{URL: dsn, Backoff: quick})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// deadlocksOf returns how many deadlocks PostgreSQL has found in the database. A session's deadlocks
// are counted when it ends.
func deadlocksOf(t *testing.T, conn *sqlconn.Conn) (n int64) {
	t.Helper()
	read(t, conn, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()", &n)
	return n
}
