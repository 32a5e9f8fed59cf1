package sqljobs_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

const childEnv = "SQLJOBS_TEST_CHILD"

func child() {}

// countNames is how many names are kept.
func countNames(t *testing.T, dsn string) (n int64) {
	t.Helper()
	if _, err := url.Parse(dsn); err != nil {
		t.Fatal(err)
	}
	c, err := sqlconn.New(sqlconn.Config{URL: dsn})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	err = c.View(bound(t), func(ctx context.Context, tx *sqlconn.Tx) error {
		return tx.Row(ctx, "SELECT count(*) FROM swarmiji_job_name").Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
