package sqlbroker_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/sqldb"
)

const (
	testMaxBody = 6 << 20
	shortLease  = time.Second
)

// promises are the promises over both kinds of databases.
var promises = brokertest.Promises{
	Durable: true, ExactCount: true, Dedupe: true, Order: true, Priorities: true, Delays: true, Batch: true, Retry: true,
	SyncAck: true, Resize: true, Inspect: true, DeadLetters: true, Oldest: true, Find: true, Queues: true, List: true, DeadByID: true, Watch: true, Witness: true, Transactions: true,
	Outlives: true, Fair: true, Bounds: true, Floor: true, ListKeys: true, MaxBody: testMaxBody,
}

// TestConformanceFair runs the suite with all queues fair. Messages without a key are in order, so
// each case holds. On PostgreSQL a short run has the cases with statements of fair queues alone.
func TestConformanceFair(t *testing.T) {
	t.Parallel()
	fair := func(c testing.TB, h *brokertest.Harness) *brokertest.Harness {
		if strings.Contains(c.Name(), "/fair/") || strings.Contains(c.Name(), "/bounds/") {
			c.Skip("these cases choose which queues are fair")
		}
		plain := h.Open
		h.Open = func(t testing.TB) broker.Broker {
			b := plain(t)
			sqlbroker.AllFair(b.(owner).Broker)
			return b
		}
		return h
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		url := "sqlite://" + filepath.Join(memoryDir(t), "app.db")
		brokertest.Run(t, func(c testing.TB) *brokertest.Harness { return fair(c, sqliteHarness(c, url)) })
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		srv := testserver.RequirePostgres(t)
		if testserver.IsThorough() { // the suite restarts it
			srv = testserver.OwnPostgres(t, testserver.PostgresConfig{})
		}
		brokertest.Run(t, func(c testing.TB) *brokertest.Harness {
			area := strings.Split(c.Name(), "/")[2]
			if !slices.Contains([]string{"delay", "deliver", "lease", "list", "model", "order", "prefetch", "priority", "retry", "settle", "transaction"}, area) {
				testserver.Thorough(c) // these use no statement of fair queues alone
			}
			return fair(c, postgresHarness(c, srv, srv.URL(), 0))
		})
	})
}

// config returns the settings of the Brokers of the tests.
func config(t testing.TB, url, namespace string) sqlbroker.Config {
	return sqlbroker.Config{DB: sqltest.Open(t, url), Namespace: namespace, MaxBody: testMaxBody, Logger: slog.New(slog.DiscardHandler)}
}

// open returns a Broker with these settings.
func open(t testing.TB, cfg sqlbroker.Config) *sqlbroker.Broker {
	t.Helper()
	b, err := sqlbroker.New(cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return b
}

// owner is a Broker that closes its database.
type owner struct {
	*sqlbroker.Broker
	db sqldb.DB
}

func (o owner) Close(ctx context.Context) error {
	return errors.Join(o.Broker.Close(ctx), o.db.Close(ctx))
}

// owning returns a Broker with these settings that closes its database.
func owning(t testing.TB, cfg sqlbroker.Config) broker.Broker { return owner{open(t, cfg), cfg.DB} }

// memoryDir returns a directory in memory if the system has one, because thousands of commits on a
// disk are slow.
func memoryDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "sqlbroker") //nolint:usetesting // that one is on the disk
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestConformanceSQLite(t *testing.T) {
	t.Parallel()
	url := "sqlite://" + filepath.Join(memoryDir(t), "app.db")
	brokertest.Run(t, func(c testing.TB) *brokertest.Harness {
		h := sqliteHarness(c, url)
		h.Report = "../../docs/capabilities/broker-sqlite.json"
		return h
	})
}

// keys returns the number of keys with messages in a fair queue.
func keys(t testing.TB, b broker.Broker, queue string) int {
	n, err := sqlbroker.Keys(t.Context(), b.(owner).Broker, queue)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// sqliteHarness returns a Harness with Brokers over a file.
func sqliteHarness(c testing.TB, url string) *brokertest.Harness {
	ns := testserver.Namespace() // many namespaces share one file
	return &brokertest.Harness{
		Open:    func(t testing.TB) broker.Broker { return owning(t, config(t, url, ns)) },
		Restart: func(testing.TB) {}, // a file has no server
		Bounded: func(t testing.TB, most int, age time.Duration) broker.Broker {
			cfg := config(t, url, ns)
			cfg.DeadMax, cfg.DeadTTL = most, age
			return owning(t, cfg)
		},
		Begin:       begin(url),
		Foreign:     foreign(c),
		Promises:    promises,
		Keys:        keys,
		Leases:      leases(c),
		Quiet:       150 * time.Millisecond,
		ModelChecks: 10,
		ModelSteps:  15,
		FairStarts:  2000,
	}
}

func TestConformancePostgres(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnPostgres(t, testserver.PostgresConfig{}) // the suite restarts it
	brokertest.Run(t, func(c testing.TB) *brokertest.Harness {
		h := postgresHarness(c, srv, srv.URL(), 0)
		h.Report = "../../docs/capabilities/broker-postgres.json"
		return h
	})
}

// TestConformancePgBouncer runs the suite through PgBouncer: with polling, and with a direct
// connection for notifications.
func TestConformancePgBouncer(t *testing.T) {
	t.Parallel()
	srv := testserver.RequirePostgres(t)
	if testserver.IsThorough() { // the fault cases restart it
		srv = testserver.OwnPostgres(t, testserver.PostgresConfig{})
	}
	pooler := testserver.OwnPgBouncer(t, srv)
	t.Run("polled", func(t *testing.T) {
		testserver.Thorough(t)
		brokertest.Run(t, func(c testing.TB) *brokertest.Harness { return postgresHarness(c, srv, pooler.Polled(srv.URL()), 0) })
	})
	t.Run("listened", func(t *testing.T) {
		brokertest.Run(t, func(c testing.TB) *brokertest.Harness {
			area := strings.Split(c.Name(), "/")[2]
			if !slices.Contains([]string{"batch", "bounds", "fair", "retry", "settle", "transaction"}, area) {
				testserver.Thorough(c) // these have all kinds of statements
			}
			return postgresHarness(c, srv, pooler.Listened(srv.URL()), 0)
		})
	})
}

// begin returns a function that begins transactions on the database of a URL.
func begin(url string) func(t testing.TB) brokertest.Transaction {
	return func(t testing.TB) brokertest.Transaction { return brokertest.Transaction(sqltest.Begin(t, url)) }
}

// foreign returns transactions of other databases.
func foreign(t testing.TB) map[string]func(t testing.TB) brokertest.Transaction {
	if !strings.Contains(t.Name(), "/transaction/") {
		return nil
	}
	other := filepath.Join(t.TempDir(), "other.db")
	closed(t, open(t, config(t, "sqlite://"+other, "other"))) // it has the tables too
	srv := testserver.RequirePostgres(t)
	database, err := srv.Database(testwait.Long(t), testserver.Namespace())
	if err != nil {
		t.Fatal(err)
	}
	closed(t, open(t, config(t, database, "other")))
	return map[string]func(t testing.TB) brokertest.Transaction{
		"another file": begin("sqlite://" + other), "a database in memory": begin("sqlite::memory:"), "another database of the server": begin(database),
	}
}

// closed makes the tables of b and closes it.
func closed(t testing.TB, b *sqlbroker.Broker) {
	t.Helper()
	if err := b.Declare(t.Context(), broker.Queue{Name: "q"}); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestConformanceShortLease runs the suite with cuts that last longer than the lease, so that
// deliveries are lost.
func TestConformanceShortLease(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the default lease only")
	}
	t.Parallel()
	srv := testserver.RequirePostgres(t)
	if testserver.IsThorough() { // the fault cases take it away
		srv = testserver.OwnPostgres(t, testserver.PostgresConfig{})
	}
	brokertest.Run(t, func(c testing.TB) *brokertest.Harness {
		area := strings.Split(c.Name(), "/")[1]
		if !slices.Contains([]string{"lease", "retry", "fault", "model"}, area) || strings.Contains(c.Name(), "restart") {
			c.Skip("the lease makes no difference")
		}
		if area == "fault" {
			testserver.Thorough(c)
		}
		return postgresHarness(c, srv, srv.URL(), shortLease)
	})
}

// leases returns a lease that is longer than all cuts and restarts here, except in cases that wait
// for its end.
func leases(t testing.TB) time.Duration {
	if strings.Contains(t.Name(), "keep_their_lease") || strings.Contains(t.Name(), "every_call_is_bounded") ||
		strings.Contains(t.Name(), "after_a_lost_connection") {
		return 2 * time.Second
	}
	return 30 * time.Second
}

// postgresHarness returns a Harness whose Brokers each reach the server at a URL through a relay of
// their own. If lease is not 0, cuts last longer than it.
func postgresHarness(t testing.TB, srv *testserver.Postgres, at string, lease time.Duration) *brokertest.Harness {
	var (
		mu     sync.Mutex
		relays = make(map[broker.Broker]*testserver.Relay)
		// created before the case starts to count goroutines
		spare = testserver.NewRelay(t, sqltest.Addr(t, at))
		down  bool
	)
	ns := testserver.Namespace()
	of := func(b broker.Broker) *testserver.Relay {
		mu.Lock()
		defer mu.Unlock()
		return relays[b]
	}
	all := func(to bool) {
		mu.Lock()
		defer mu.Unlock()
		down = to
		for _, line := range relays {
			line.SetDown(to)
		}
	}
	h := &brokertest.Harness{
		Open: func(t testing.TB) broker.Broker {
			mu.Lock()
			defer mu.Unlock()
			line := spare
			if spare = nil; line == nil {
				line = testserver.NewRelay(t, sqltest.Addr(t, at))
			}
			line.SetDown(down)
			b := owning(t, config(t, line.URL(at)+"&pool_max_conns=4", ns))
			relays[b] = line
			return b
		},
		Bounded: func(t testing.TB, most int, age time.Duration) broker.Broker {
			cfg := config(t, at, ns)
			cfg.DeadMax, cfg.DeadTTL = most, age
			return owning(t, cfg)
		},
		Sever: func(c testing.TB, b broker.Broker) {
			line := of(b)
			if lease == 0 {
				line.Sever()
				return
			}
			line.SetDown(true)
			cut := time.Now()
			testwait.Until(c, "the leases have ended", func() bool { return time.Since(cut) > lease+lease/4 })
			line.SetDown(false)
		},
		Isolate: func(_ testing.TB, b broker.Broker) (back func()) {
			line := of(b)
			line.SetDown(true)
			return func() { line.SetDown(false) }
		},
		Restart: func(t testing.TB) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			srv.Kill()
			if err := srv.Restart(ctx); err != nil {
				t.Fatalf("restarting the server: %v", err)
			}
		},
		Down: func(testing.TB) (up func()) {
			all(true)
			return func() { all(false) }
		},
		Begin:       begin(at),
		Foreign:     foreign(t),
		Secret:      srv.Password(),
		Keys:        keys,
		Promises:    promises,
		Leases:      leases(t),
		Quiet:       200 * time.Millisecond,
		ModelChecks: 10,
		ModelSteps:  15,
		FairStarts:  2000,
	}
	// A claim does not wait for the disk, so a killed server may forget it.
	h.Promises.Forgets = true
	if lease != 0 {
		h.Leases, h.Promises.Outlives, h.ModelChecks = lease, false, 4
	}
	return h
}
