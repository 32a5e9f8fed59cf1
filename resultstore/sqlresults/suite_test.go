package sqlresults_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/resultstoretest"
	"github.com/swarmiji/swarmiji/resultstore/sqlresults"
	"github.com/swarmiji/swarmiji/sqldb"
)

// largest is MaxResult of the suite's stores, in bytes.
const largest = 2 << 20

func promises() resultstoretest.Promises {
	return resultstoretest.Promises{Notify: true, Gather: true, Claim: true, Swap: true, Batches: true, Checkpoints: true, Transactions: true, Durable: true, TTL: 400 * time.Millisecond, MaxResult: largest}
}

// quiet is the suite's wait for records that must not arrive. A notification of another process
// takes about 10 ms.
const quiet = 200 * time.Millisecond

// unread is more than one page, which is the most that a stream holds.
const unread = sqlresults.PageSize + 50

// The suites run in parallel after all other tests, because those may stop the PostgreSQL server.

func TestStore(t *testing.T) {
	t.Parallel()
	dsn := urlIn(memoryDir(t))
	resultstoretest.Run(t, func(testing.TB) *resultstoretest.Harness { return fileHarness(dsn) })
}

func TestStoreMemory(t *testing.T) {
	t.Parallel()
	db := sqltest.Open(t, "sqlite::memory:")
	resultstoretest.Run(t, func(testing.TB) *resultstoretest.Harness { return memoryHarness(db) })
}

func TestStorePostgres(t *testing.T) {
	t.Parallel()
	resultstoretest.Run(t, func(t testing.TB) *resultstoretest.Harness {
		p := testserver.RequirePostgres(t)
		h := postgresHarness(p, p.URL())
		h.Report = "../../docs/capabilities/results-postgres.json"
		return h
	})
}

// TestStorePgBouncer runs the suite through PgBouncer: with polling, and with a direct connection
// for notifications.
func TestStorePgBouncer(t *testing.T) {
	t.Parallel()
	p := testserver.OwnPostgres(t, testserver.PostgresConfig{})
	pooler := testserver.OwnPgBouncer(t, p)
	t.Run("polled", func(t *testing.T) {
		testserver.Thorough(t)
		resultstoretest.Run(t, func(testing.TB) *resultstoretest.Harness { return postgresHarness(p, pooler.Polled(p.URL())) })
	})
	t.Run("listened", func(t *testing.T) {
		resultstoretest.Run(t, func(t testing.TB) *resultstoretest.Harness {
			if area := strings.Split(t.Name(), "/")[2]; !slices.Contains([]string{"record", "fence", "notify", "transaction"}, area) {
				testserver.Thorough(t) // these have all kinds of statements and of notifications
			}
			return postgresHarness(p, pooler.Listened(p.URL()))
		})
	})
}

func fileHarness(dsn string) *resultstoretest.Harness {
	ns := testserver.Namespace() // many namespaces share one database
	return &resultstoretest.Harness{
		Open: func(t testing.TB) resultstore.ResultStore {
			return open(t, sqlresults.Config{DB: sqltest.Open(t, dsn), Namespace: ns, MaxResult: largest})
		},
		Begin:    begin(dsn),
		Foreign:  foreign,
		Restart:  func(testing.TB) {}, // a file has no server; TestKilled covers killed processes
		Prefix:   ns,
		Promises: promises(),
		Quiet:    quiet,
		Unread:   unread,
		Report:   "../../docs/capabilities/results-sqlite.json",
	}
}

// memoryHarness returns a harness whose stores share a database in memory.
func memoryHarness(db sqldb.DB) *resultstoretest.Harness {
	ns := testserver.Namespace()
	p := promises()
	p.Durable = false // and no other connection reaches it: the transaction cases are those of files
	return &resultstoretest.Harness{
		Open: func(t testing.TB) resultstore.ResultStore {
			return open(t, sqlresults.Config{DB: db, Namespace: ns, MaxResult: largest})
		},
		Prefix:   ns,
		Promises: p,
		Quiet:    quiet,
		Unread:   unread,
	}
}

// postgresHarness returns a harness whose stores reach the server p at a URL.
func postgresHarness(p *testserver.Postgres, at string) *resultstoretest.Harness {
	ns := testserver.Namespace()
	up := func(t testing.TB) {
		if err := p.Restart(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	return &resultstoretest.Harness{
		Open: func(t testing.TB) resultstore.ResultStore {
			return open(t, sqlresults.Config{DB: sqltest.Open(t, at+"&pool_max_conns=4"), Namespace: ns, MaxResult: largest})
		},
		Sever: func(t testing.TB, _ resultstore.ResultStore) {
			if err := p.CloseAllConnections(within(t, 20*time.Second)); err != nil {
				t.Fatal(err)
			}
		},
		Restart: func(t testing.TB) {
			p.Kill()
			up(t)
		},
		Down: func(t testing.TB) func() {
			p.Kill()
			return func() { up(t) }
		},
		Begin:    begin(at),
		Foreign:  foreign,
		Prefix:   ns,
		Secret:   p.Password(),
		Promises: promises(),
		Quiet:    quiet,
		Unread:   unread,
	}
}

// begin returns a function that begins transactions on the database of a URL.
func begin(url string) func(t testing.TB) resultstoretest.Transaction {
	return func(t testing.TB) resultstoretest.Transaction {
		return resultstoretest.Transaction(sqltest.Begin(t, url))
	}
}

// foreign begins transactions of other databases.
var foreign = map[string]func(t testing.TB) resultstoretest.Transaction{
	"another file": func(t testing.TB) resultstoretest.Transaction { return begin(fileURL(t))(t) },
}

func closed(t testing.TB, s resultstore.ResultStore) {
	t.Helper()
	if err := s.Close(context.WithoutCancel(within(t, 20*time.Second))); err != nil {
		t.Errorf("Close: %v", err)
	}
}
