package sqlconn_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestLongerThanTimeout shows that a function is not repeated if it needs longer than Timeout while
// the server answers. A function whose first statement waits for a lock is repeated.
func TestLongerThanTimeout(t *testing.T) {
	dsn := pgURL(t, testserver.RequirePostgres(t))
	c, other := open(t, sqlconn.Config{URL: dsn, Timeout: time.Second}), open(t, sqlconn.Config{URL: dsn})
	run(t, other, "CREATE TABLE t (id bigint PRIMARY KEY NOT NULL, v text)")
	runs := 0
	count := func(ctx context.Context, tx *sqlconn.Tx, statement string) error {
		if runs++; runs == 5 {
			return errors.New("the fifth run")
		}
		for {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
	}
	for what, err := range map[string]func() error{
		"Update": func() error {
			return c.Update(context.Background(), func(ctx context.Context, tx *sqlconn.Tx) error {
				return count(ctx, tx, "INSERT INTO t (id) SELECT count(*) FROM t")
			})
		},
		"View": func() error {
			return c.View(context.Background(), func(ctx context.Context, tx *sqlconn.Tx) error {
				return count(ctx, tx, "SELECT count(*) FROM t")
			})
		},
		"the rows of one View": func() error {
			return c.View(context.Background(), func(ctx context.Context, tx *sqlconn.Tx) error {
				if runs++; runs == 5 {
					return errors.New("the fifth run")
				}
				rows, err := tx.Query(ctx, "SELECT generate_series(1, 1000000000000)")
				if err != nil {
					return err
				}
				for rows.Next() {
					continue
				}
				return errors.Join(rows.Err(), rows.Close())
			})
		},
	} {
		runs = 0
		if err := err(); !errors.Is(err, sqlconn.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v after %d runs, want %v", what, err, runs, sqlconn.ErrUnavailable)
		}
	}
	if n := number(t, other, "SELECT count(*) FROM t"); n != 0 {
		t.Errorf("%d rows, want none", n)
	}

	release := make(chan struct{})
	held := make(chan error, 1)
	go func() {
		held <- other.Update(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
			_, err := tx.Exec(ctx, "LOCK TABLE t")
			if err == nil {
				held <- nil
				<-release
			}
			return err
		})
	}()
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	runs = 0
	if err := c.Update(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
		if runs++; runs == 3 {
			close(release)
		}
		_, err := tx.Exec(ctx, "INSERT INTO t (id) VALUES (1)")
		return err
	}); err != nil || runs < 3 {
		t.Errorf("behind a lock: %v after %d runs", err, runs)
	}
	if err := <-held; err != nil {
		t.Error(err)
	}
}
