package sqljobs_test

import (
	"context"
	"testing"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// ownDatabase creates an empty PostgreSQL database for one test and returns its URL.
func ownDatabase(t testing.TB) string {
	t.Helper()
	dsn, err := testserver.RequirePostgres(t).Database(t.Context(), testserver.Namespace())
	if err != nil {
		t.Fatal(err)
	}
	return dsn
}

// watching returns a separate connection, beside those of the tested stores. It is closed when the
// test ends.
func watching(t testing.TB, dsn string) *sqlconn.Conn {
	t.Helper()
	conn := sqltest.Conn(t, dsn)
	t.Cleanup(func() {
		if err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// jobsConn is watching with the tables of jobs as its component.
func jobsConn(t testing.TB, dsn string) *sqlconn.Conn {
	t.Helper()
	conn, err := sqlconn.Of(sqltest.Open(t, dsn), "jobs")
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

// deadlocksOf returns the number of deadlocks that PostgreSQL has found in the database. The server
// counts a session's deadlocks when the session ends.
func deadlocksOf(t *testing.T, conn *sqlconn.Conn) (n int64) {
	t.Helper()
	read(t, conn, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()", &n)
	return n
}
