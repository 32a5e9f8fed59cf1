package sqlconn_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestErrorOfRows shows that the error of a query has its text once, also if the caller joins the
// errors of Err and Close.
func TestErrorOfRows(t *testing.T) {
	eachURL(t, func(t *testing.T, dsn string) {
		c := open(t, sqlconn.Config{URL: dsn})
		query, want := "SELECT 1 / (2 - i) FROM generate_series(1, 3) AS i", "division by zero"
		if c.Dialect() == sqlconn.SQLite {
			query, want = "SELECT abs(i) FROM (SELECT 1 AS i UNION ALL SELECT -9223372036854775807 - 1)", "integer overflow"
		}
		err := c.View(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
			rows, err := tx.Query(ctx, query)
			if err != nil {
				return err
			}
			for rows.Next() {
			}
			return errors.Join(rows.Err(), rows.Close())
		})
		if err == nil || strings.Count(err.Error(), want) != 1 || !errors.Is(err, sqlconn.ErrRefused) {
			t.Errorf("%v; want %q once", err, want)
		}
	})
}
