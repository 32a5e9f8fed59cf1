package testserver

import (
	"context"
	"testing"
)

// RequirePostgres returns the server that all tests of this binary share. The first call starts it;
// later calls start it again if an earlier test stopped, killed or paused it. The server ends with
// the process. Without PostgreSQL the test is skipped, see the package comment.
func RequirePostgres(tb testing.TB) *Postgres {
	tb.Helper()
	return require(tb, &shared.postgres, func(ctx context.Context) (*Postgres, error) {
		return StartPostgres(ctx, PostgresConfig{})
	})
}

// OwnPostgres starts a server for one test and closes it at the end of the test.
func OwnPostgres(tb testing.TB, cfg PostgresConfig) *Postgres {
	tb.Helper()
	return own(tb, startTime, func(ctx context.Context) (*Postgres, error) { return StartPostgres(ctx, cfg) })
}
