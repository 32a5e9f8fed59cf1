package sqlconn_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

// migrate makes the table swarmiji_j and the table of versions.
func migrate(ctx context.Context, c *sqlconn.Conn) error {
	file := &fstest.MapFile{Data: []byte("CREATE TABLE swarmiji_j (id bigint PRIMARY KEY NOT NULL, v text)")}
	return sqlconn.Migrate(ctx, c, "join", fstest.MapFS{"sqlite/0001_join.sql": file, "postgres/0001_join.sql": file})
}

// join stores a row by Join.
func join(ctx context.Context, c *sqlconn.Conn, t sqltest.Transaction, id int64) error {
	return c.Join(ctx, t.Tx, func(ctx context.Context) error { return migrate(ctx, c) }, []string{"SELECT swarmiji_j", "INSERT swarmiji_j"},
		func(ctx context.Context, tx *sqlconn.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO swarmiji_j (id, v) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING", id, "v")
			return err
		})
}

// rows returns the number of rows.
func rows(ctx context.Context, t *testing.T, c *sqlconn.Conn) (n int) {
	t.Helper()
	if err := c.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		return tx.Row(ctx, "SELECT count(*) FROM swarmiji_j").Scan(&n)
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// statement runs a statement in a transaction of a test.
func statement(ctx context.Context, t *testing.T, own sqltest.Transaction, query string, args ...any) {
	t.Helper()
	if _, err := own.Tx.Exec(ctx, query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// The changes of Join are part of the caller's transaction, with each client library.
func TestJoin(t *testing.T) {
	eachURL(t, func(t *testing.T, dsn string) {
		ctx := testwait.Long(t)
		c := open(t, sqlconn.Config{URL: dsn})
		if err := migrate(ctx, c); err != nil {
			t.Fatal(err)
		}
		for i, begin := range []func(testing.TB, string) sqltest.Transaction{sqltest.Begin, sqltest.BeginSQL} {
			own := begin(t, dsn)
			if err := join(ctx, c, own, int64(i)); err != nil {
				t.Fatal(err)
			}
			if n := rows(ctx, t, c); n != i {
				t.Errorf("%d rows before the commit, want %d", n, i)
			}
			if err := own.Commit(); err != nil {
				t.Fatal(err)
			}
			if n := rows(ctx, t, c); n != i+1 {
				t.Errorf("%d rows after the commit, want %d", n, i+1)
			}
			own = begin(t, dsn)
			if err := join(ctx, c, own, 100); err != nil {
				t.Fatal(err)
			}
			if err := own.Rollback(); err != nil {
				t.Fatal(err)
			}
			if n := rows(ctx, t, c); n != i+1 {
				t.Errorf("%d rows after the rollback, want %d", n, i+1)
			}
		}
	})
}

// A refused transaction continues, with the caller's own changes.
func TestJoinRefused(t *testing.T) {
	ctx := testwait.Long(t)
	srv := testserver.RequirePostgres(t)
	dsn := pgURL(t, srv)
	c := open(t, sqlconn.Config{URL: dsn})
	if err := migrate(ctx, c); err != nil {
		t.Fatal(err)
	}
	run(t, c, "CREATE TABLE own (v text)")
	run(t, c, "CREATE SCHEMA elsewhere")
	role := testserver.Namespace()
	run(t, c, "CREATE ROLE "+role)
	run(t, c, "GRANT SELECT ON swarmiji_j TO "+role)
	run(t, c, "GRANT INSERT ON own TO "+role)
	for _, refused := range []struct {
		name, before string
		want         error
		text         string
	}{
		{"a role", "SET LOCAL ROLE " + role, sqlconn.ErrAccess, "swarmiji_j"},
		{"read-only", "SET TRANSACTION READ ONLY", sqlconn.ErrAccess, "read-only"},
	} {
		t.Run(refused.name, func(t *testing.T) {
			own := sqltest.Begin(t, dsn)
			statement(ctx, t, own, refused.before)
			err := join(ctx, c, own, 1)
			if !errors.Is(err, refused.want) || !strings.Contains(err.Error(), refused.text) {
				t.Errorf("Join: %v, want %v with %q", err, refused.want, refused.text)
			}
			if refused.name != "read-only" {
				statement(ctx, t, own, "INSERT INTO public.own (v) VALUES ($1)", "x")
			}
			if err := own.Commit(); err != nil {
				t.Errorf("Commit after the refusal: %v", err)
			}
		})
	}
	if n := rows(ctx, t, c); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
}

// A transaction that has failed by an error of the caller is refused.
func TestJoinAfterError(t *testing.T) {
	ctx := testwait.Long(t)
	dsn := pgURL(t, testserver.RequirePostgres(t))
	c := open(t, sqlconn.Config{URL: dsn})
	if err := migrate(ctx, c); err != nil {
		t.Fatal(err)
	}
	for _, begin := range []func(testing.TB, string) sqltest.Transaction{sqltest.Begin, sqltest.BeginSQL} {
		own := begin(t, dsn)
		if _, err := own.Tx.Exec(ctx, "SELECT 1 / 0"); err == nil {
			t.Fatal("no error")
		}
		if err := join(ctx, c, own, 1); !errors.Is(err, sqlconn.ErrForeign) {
			t.Errorf("Join: %v, want ErrForeign", err)
		}
	}
}

// The search path of the caller's transaction has no effect.
func TestJoinElsewhere(t *testing.T) {
	ctx := testwait.Long(t)
	dsn := pgURL(t, testserver.RequirePostgres(t))
	c := open(t, sqlconn.Config{URL: dsn, Schema: "app"})
	run(t, c, "CREATE SCHEMA elsewhere")
	own := sqltest.Begin(t, dsn)
	statement(ctx, t, own, "SET LOCAL search_path = elsewhere")
	if err := join(ctx, c, own, 1); err != nil {
		t.Fatal(err)
	}
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := number(t, c, "SELECT count(*) FROM app.swarmiji_j"); n != 1 {
		t.Errorf("%d rows in the schema app, want 1", n)
	}
}

// The server's identity changes with its restart. The Conn then reads its own again.
func TestJoinAfterRestart(t *testing.T) {
	ctx := testwait.Long(t)
	srv := testserver.OwnPostgres(t, testserver.PostgresConfig{})
	c := open(t, sqlconn.Config{URL: srv.URL()})
	own := sqltest.Begin(t, srv.URL())
	if err := join(ctx, c, own, 1); err != nil {
		t.Fatal(err)
	}
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}
	srv.Kill()
	if err := srv.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	own = sqltest.Begin(t, srv.URL())
	if err := join(ctx, c, own, 2); err != nil {
		t.Fatalf("Join after the restart: %v", err)
	}
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := rows(ctx, t, c); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

// On SQLite a transaction that holds the write lock keeps Join from making tables. Join does not
// wait for ever, and the transaction continues. A file has other names too.
func TestJoinSQLite(t *testing.T) {
	ctx := testwait.Long(t)
	dsn := liteURL(t)
	c := open(t, sqlconn.Config{URL: dsn})
	own := sqltest.Begin(t, dsn)
	statement(ctx, t, own, "CREATE TABLE own (v text)")
	if err := join(ctx, c, own, 1); !errors.Is(err, sqlconn.ErrUnavailable) || !strings.Contains(err.Error(), "before the transaction begins") {
		t.Errorf("Join without tables: %v", err)
	}
	statement(ctx, t, own, "INSERT INTO own (v) VALUES ($1)", "x")
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := migrate(ctx, c); err != nil {
		t.Fatal(err)
	}
	own = sqltest.Begin(t, strings.Replace(dsn, "/test.db", "/../"+dirOf(dsn)+"/test.db", 1))
	if err := join(ctx, c, own, 2); err != nil {
		t.Errorf("Join by another path: %v", err)
	}
	failed := errors.New("failed")
	err := c.Join(ctx, own.Tx, func(context.Context) error { return nil }, nil, func(ctx context.Context, tx *sqlconn.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO swarmiji_j (id, v) VALUES ($1, $2)", int64(3), "half")
		return errors.Join(err, failed)
	})
	if !errors.Is(err, failed) {
		t.Errorf("Join returns %v, want the error of the function", err)
	}
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := rows(ctx, t, c); n != 1 {
		t.Errorf("%d rows, want the one of the call that succeeded", n)
	}
}

// dirOf returns the name of the directory of the file.
func dirOf(dsn string) string {
	parts := strings.Split(dsn, "/")
	return parts[len(parts)-2]
}

// A watcher of another Conn is notified after the commit of the caller.
func TestJoinNotifies(t *testing.T) {
	eachURL(t, func(t *testing.T, dsn string) {
		ctx := testwait.Long(t)
		c, other := open(t, sqlconn.Config{URL: dsn}), open(t, sqlconn.Config{URL: dsn})
		if err := migrate(ctx, c); err != nil {
			t.Fatal(err)
		}
		w := other.Watch(0, "topic")
		defer w.Close()
		own := sqltest.Begin(t, dsn)
		err := c.Join(ctx, own.Tx, func(context.Context) error { return nil }, nil, func(ctx context.Context, tx *sqlconn.Tx) error {
			tx.Notify("topic")
			_, err := tx.Exec(ctx, "INSERT INTO swarmiji_j (id, v) VALUES ($1, $2)", int64(1), "v")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := own.Commit(); err != nil {
			t.Fatal(err)
		}
		for rows(ctx, t, other) == 0 { // the first notifications may come before the commit
			select {
			case <-w.C():
			case <-ctx.Done():
				t.Fatal("no notification of the change")
			}
		}
	})
}

// TestJoinAPoolOfOne passes a pool in place of a transaction, while its only connection is in use.
// The wait for the connection ends with the context.
func TestJoinAPoolOfOne(t *testing.T) {
	eachURL(t, func(t *testing.T, dsn string) {
		ctx := testwait.Long(t)
		c := open(t, sqlconn.Config{URL: dsn})
		if err := migrate(ctx, c); err != nil {
			t.Fatal(err)
		}
		pool := sqltest.OpenSQL(t, dsn)
		pool.SetMaxOpenConns(1)
		taken, err := pool.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = taken.Close() }()
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := join(short, c, sqltest.Transaction{Tx: sqltx.Wrap(pool)}, 1); err == nil {
				t.Error("a pool is no transaction")
			}
		}()
		testwait.Closed(t, "the call has ended", ended)
	})
}
