// Package sqltest opens databases of both kinds, for tests.
package sqltest

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/sqldb"
	"github.com/swarmiji/swarmiji/sqldb/postgres"
	"github.com/swarmiji/swarmiji/sqldb/sqlite"
	"github.com/swarmiji/swarmiji/task"
)

// New returns the database of a URL of any kind, with short pauses between attempts to connect.
func New(url string) (sqldb.DB, error) {
	quick, quiet := task.Backoff{Base: 5 * time.Millisecond, Max: 100 * time.Millisecond}, slog.New(slog.DiscardHandler)
	if strings.HasPrefix(url, "sqlite:") {
		return sqlite.Open(url, sqlite.Config{Backoff: quick, Logger: quiet})
	}
	return postgres.Open(url, postgres.Config{Backoff: quick, Logger: quiet})
}

// Open returns the database of a URL as New does, and closes it at the end of the test. It fails t
// on an error.
func Open(t testing.TB, url string) sqldb.DB {
	t.Helper()
	db, err := New(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := db.Close(ctx); err != nil {
			t.Errorf("close the database: %v", err)
		}
	})
	return db
}

// Addr returns host:port of at, a URL of PostgreSQL. It fails t if at cannot be parsed.
func Addr(t testing.TB, at string) string {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal("the URL cannot be read") // its text may contain a password
	}
	return u.Host
}

// Conn opens the database of a URL, which is closed at the end of the test, and returns a
// sqlconn.Conn for statements of the test.
func Conn(t testing.TB, url string) *sqlconn.Conn {
	t.Helper()
	c, err := sqlconn.Of(Open(t, url), "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}
