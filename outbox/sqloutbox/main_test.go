package sqloutbox_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/outbox/sqloutbox"
)

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

// database is a database of a user.
type database struct{ url string }

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
	return &database{"sqlite://" + filepath.Join(t.TempDir(), "app.db")}
}

func postgres(t testing.TB) *database {
	url, err := testserver.RequirePostgres(t).Database(testwait.Long(t), testserver.Namespace())
	must(t, err)
	return &database{url}
}

// begin begins a transaction of the user. On SQLite it has the write lock.
func (d *database) begin(t testing.TB) sqltest.Transaction { return sqltest.Begin(t, d.url) }

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
	cfg := sqloutbox.Config{DB: sqltest.Open(t, d.url)}
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
	must(t, s.PublishTx(testwait.Long(t), u.Tx, ms))
	must(t, u.Commit())
}

// numbered returns n messages of a key, whose ids begin with prefix.
func numbered(prefix, key string, n int) []broker.Outgoing {
	ms := make([]broker.Outgoing, n)
	for i := range ms {
		ms[i] = broker.Outgoing{Queue: "work", OrderKey: key, Message: &broker.Message{ID: fmt.Sprint(prefix, i), Body: []byte("body")}}
	}
	return ms
}
