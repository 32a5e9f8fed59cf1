package sqlevents_test

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/eventstest"
	"github.com/swarmiji/swarmiji/events/sqlevents"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/sqldb"
)

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

// buffer is the Buffer of the suite's buses.
const buffer = 1000

// config returns the settings of the tests' buses.
func config(t testing.TB, url, namespace string) sqlevents.Config {
	return sqlevents.Config{
		DB: sqltest.Open(t, url), Namespace: namespace, Buffer: buffer, Batch: events.BatcherConfig{Capacity: buffer}, Logger: slog.New(slog.DiscardHandler),
	}
}

// owner is a Bus that closes its database.
type owner struct {
	*sqlevents.Bus
	db sqldb.DB
}

func (o owner) Close(ctx context.Context) error {
	return errors.Join(o.Bus.Close(ctx), o.db.Close(ctx))
}

// owning returns a Bus with these settings that closes its database.
func owning(t testing.TB, c sqlevents.Config) events.EventBus { return owner{open(t, c), c.DB} }

func open(t testing.TB, c sqlevents.Config) *sqlevents.Bus {
	t.Helper()
	b, err := sqlevents.New(c)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return b
}

// opened is open for a bus that the test does not close.
func opened(t testing.TB, c sqlevents.Config) *sqlevents.Bus {
	t.Helper()
	b := open(t, c)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

// fileURL returns the URL of a new file, in memory if the system has such a directory.
func fileURL(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "sqlevents") //nolint:usetesting // that one is on the disk
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return "sqlite://" + filepath.Join(dir, "app.db")
}

func TestBus(t *testing.T) {
	url := fileURL(t)
	eventstest.Run(t, func(testing.TB) *eventstest.Harness { return fileHarness(url) })
}

func TestBusPostgres(t *testing.T) {
	srv := testserver.OwnPostgres(t, testserver.PostgresConfig{})
	eventstest.Run(t, func(t testing.TB) *eventstest.Harness {
		h := postgresHarness(t, srv, srv.URL())
		h.Report = "../../docs/capabilities/events-postgres.json"
		return h
	})
}

// TestBusPgBouncer runs the suite through PgBouncer: with polling, and with a direct connection for
// notifications.
func TestBusPgBouncer(t *testing.T) {
	testserver.Thorough(t)
	srv := testserver.OwnPostgres(t, testserver.PostgresConfig{})
	pooler := testserver.OwnPgBouncer(t, srv)
	for name, at := range map[string]string{"polled": pooler.Polled(srv.URL()), "listened": pooler.Listened(srv.URL())} {
		t.Run(name, func(t *testing.T) {
			eventstest.Run(t, func(t testing.TB) *eventstest.Harness {
				h := postgresHarness(t, srv, at)
				if name == "polled" {
					h.Quiet = 1500 * time.Millisecond // longer than the longest poll
				}
				return h
			})
		})
	}
}

func BenchmarkBus(b *testing.B) {
	url := fileURL(b)
	eventstest.Bench(b, func(testing.TB) *eventstest.Harness { return fileHarness(url) })
}

func fileHarness(url string) *eventstest.Harness {
	ns := testserver.Namespace() // many namespaces share one file
	return &eventstest.Harness{
		Open: func(t testing.TB) events.EventBus { return owning(t, config(t, url, ns)) },
		Retain: func(t testing.TB, r events.Retention) events.EventBus {
			c := config(t, url, ns)
			c.Retain = r
			return owning(t, c)
		},
		Restart: func(testing.TB) {}, // a file has no server
		Buffer:  buffer,
		Quiet:   400 * time.Millisecond,
		Report:  "../../docs/capabilities/events-sqlite.json",
	}
}

// postgresHarness returns a harness whose buses each reach the server at a URL through their own
// relay.
func postgresHarness(t testing.TB, srv *testserver.Postgres, at string) *eventstest.Harness {
	var (
		mu     sync.Mutex
		relays = make(map[events.EventBus]*testserver.Relay)
		spare  = []*testserver.Relay{} // made before the case starts to count goroutines
		down   bool
	)
	for range 2 {
		spare = append(spare, testserver.NewRelay(t, sqltest.Addr(t, at)))
	}
	ns := testserver.Namespace()
	bus := func(t testing.TB, r events.Retention) events.EventBus {
		mu.Lock()
		defer mu.Unlock()
		var line *testserver.Relay
		if n := len(spare); n > 0 {
			line, spare = spare[n-1], spare[:n-1]
		} else {
			line = testserver.NewRelay(t, sqltest.Addr(t, at))
		}
		line.SetDown(down)
		c := config(t, line.URL(at)+"&pool_max_conns=4", ns)
		c.Retain = r
		b := owning(t, c)
		relays[b] = line
		return b
	}
	all := func(to bool) {
		mu.Lock()
		defer mu.Unlock()
		down = to
		for _, line := range relays {
			line.SetDown(to)
		}
	}
	return &eventstest.Harness{
		Open:   func(t testing.TB) events.EventBus { return bus(t, events.Retention{}) },
		Retain: bus,
		Sever: func(_ testing.TB, b events.EventBus) {
			mu.Lock()
			defer mu.Unlock()
			relays[b].Sever()
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
		Secret: srv.Password(),
		Buffer: buffer,
		Quiet:  400 * time.Millisecond,
	}
}
