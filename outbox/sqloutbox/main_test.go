package sqloutbox_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/outbox/sqloutbox"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx"
	"github.com/swarmiji/swarmiji/tx/pgxtx"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

// database is a database of a user.
type database struct {
	url   string
	begin func(t testing.TB) transaction
}

// transaction is a transaction of a user.
type transaction struct {
	tx.Tx

	commit, rollback func()
}

// each runs a test on both kinds of databases.
func each(t *testing.T, test func(t *testing.T, d *database)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, sqlite(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, postgres(t))
	})
}

func sqlite(t testing.TB) *database {
	file := filepath.Join(t.TempDir(), "app.db")
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &database{url: "sqlite://" + file, begin: func(t testing.TB) transaction {
		begun, err := db.BeginTx(testwait.Long(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		return transaction{sqltx.Wrap(begun), func() { must(t, begun.Commit()) }, func() { _ = begun.Rollback() }}
	}}
}

func postgres(t testing.TB) *database {
	ctx := testwait.Long(t)
	url, err := testserver.RequirePostgres(t).Database(ctx, strings.ReplaceAll(testserver.Namespace(), "-", "_"))
	if err != nil {
		t.Fatal(err)
	}
	return &database{url: url, begin: func(t testing.TB) transaction {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		begun, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		end := func(err error) {
			must(t, err)
			must(t, conn.Close(ctx))
		}
		return transaction{pgxtx.Wrap(begun), func() { end(begun.Commit(ctx)) }, func() { end(begun.Rollback(ctx)) }}
	}}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open returns a prepared Store of the database.
func (d *database) open(t testing.TB, change ...func(*sqloutbox.Config)) *sqloutbox.Store {
	t.Helper()
	s := d.unprepared(t, change...)
	must(t, s.Prepare(testwait.Long(t)))
	return s
}

// unprepared returns a Store of the database.
func (d *database) unprepared(t testing.TB, change ...func(*sqloutbox.Config)) *sqloutbox.Store {
	t.Helper()
	cfg := sqloutbox.Config{
		Engine: sqltest.Engine(d.url), URL: d.url, Backoff: task.Backoff{Base: 5 * time.Millisecond, Max: 100 * time.Millisecond},
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&cfg)
	}
	s, err := sqloutbox.New(cfg)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close(testwait.Long(t))) })
	return s
}

// submit stores messages in a transaction and commits it.
func (d *database) submit(t testing.TB, s *sqloutbox.Store, ms ...broker.Outgoing) {
	t.Helper()
	u := d.begin(t)
	must(t, s.PublishTx(testwait.Long(t), u, ms))
	u.commit()
}

// numbered returns n messages of a key, whose ids begin with prefix.
func numbered(prefix, key string, n int) []broker.Outgoing {
	ms := make([]broker.Outgoing, n)
	for i := range ms {
		ms[i] = broker.Outgoing{Queue: "work", OrderKey: key, Message: &broker.Message{ID: fmt.Sprint(prefix, i), Body: []byte("body")}}
	}
	return ms
}
