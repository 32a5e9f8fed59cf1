package sqllimit_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/limit/limittest"
	"github.com/swarmiji/swarmiji/limit/sqllimit"
)

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

func opened(t testing.TB, url, namespace string) *sqllimit.Limiter {
	t.Helper()
	l, err := sqllimit.New(sqllimit.Config{DB: sqltest.Open(t, url), Namespace: namespace, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// fileURL returns the URL of a new file, in memory if the system has such a directory.
func fileURL(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "sqllimit") //nolint:usetesting // that one is on the disk
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return "sqlite://" + filepath.Join(dir, "app.db")
}

// each runs a test on both kinds of databases, and thoroughly also through PgBouncer.
func each(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, fileURL(t)) })
	database := func(t *testing.T) string {
		url, err := testserver.RequirePostgres(t).Database(t.Context(), testserver.Namespace())
		if err != nil {
			t.Fatal(err)
		}
		return url + "&pool_max_conns=8"
	}
	t.Run("postgres", func(t *testing.T) { test(t, database(t)) })
	t.Run("pgbouncer", func(t *testing.T) {
		testserver.Thorough(t)
		test(t, testserver.RequirePgBouncer(t).Polled(database(t)))
	})
}

func TestLimiter(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		limittest.Run(t, func(*testing.T) func(*testing.T) limit.Limiter {
			ns := testserver.Namespace()
			return func(t *testing.T) limit.Limiter { return opened(t, url, ns) }
		})
	})
}

// beside opens another connection to the database.
func beside(t *testing.T, url string) *sqlconn.Conn {
	t.Helper()
	c := sqltest.Conn(t, url)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// rows returns the number of rows of held permits and of rates.
func rows(t *testing.T, c *sqlconn.Conn) (n int) {
	t.Helper()
	err := c.View(t.Context(), func(ctx context.Context, tx *sqlconn.Tx) error {
		return tx.Row(ctx, "SELECT (SELECT count(*) FROM swarmiji_limit_hold) + (SELECT count(*) FROM swarmiji_limit_rate)").Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestNothingStays shows that any limiter of the database deletes the rows of dead processes and of
// unused rates, in all namespaces. More rows than one statement deletes need several calls.
func TestNothingStays(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		dead, conn := opened(t, url, "a"), beside(t, url)
		sqllimit.NeverSweep(dead)
		for i := range 300 {
			p := limit.Permit{Key: fmt.Sprint(i), Max: 1, Rate: 100}
			if d, err := dead.Acquire(t.Context(), "dead", limit.MinLease, p); err != nil || !d.Granted {
				t.Fatal(d, err)
			}
		}
		if n := rows(t, conn); n != 600 {
			t.Errorf("%d rows, want 600", n)
		}
		other := opened(t, url, "b")
		sqllimit.NeverSweep(other)
		testwait.Until(t, "no row is left but that of the call", func() bool {
			sqllimit.SweepNow(other)
			if d, err := other.Acquire(t.Context(), "1", time.Minute, limit.Permit{Key: "a", Max: 1}); err != nil || !d.Granted {
				t.Fatal(d, err)
			}
			return rows(t, conn) == 1
		})
	})
}

// TestManyKeysAtOnce acquires permits of the same keys in different orders from several limiters.
// Nothing deadlocks, and no more than Max is held.
func TestManyKeysAtOnce(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		keys := []string{"a", "b", "c", "d"}
		var held [4]atomic.Int64
		work := make(chan error, 4)
		for g := range 4 {
			l := opened(t, url, "many")
			go func() {
				work <- func() error {
					for i := range 40 {
						var ps []limit.Permit
						for k := range keys { // another order for each goroutine
							ps = append(ps, limit.Permit{Key: keys[(k*3+g)%4], Max: 2, Rate: 900_000})
						}
						holder := fmt.Sprint(g, "-", i)
						for {
							d, err := l.Acquire(t.Context(), holder, time.Minute, ps...)
							if err != nil {
								return err
							}
							if d.Granted {
								break
							}
						}
						for k := range held {
							if n := held[k].Add(1); n > 2 {
								return fmt.Errorf("%d hold %s", n, keys[k])
							}
						}
						if err := l.Renew(t.Context(), holder, time.Minute, ps...); err != nil {
							return err
						}
						for k := range held {
							held[k].Add(-1)
						}
						if err := l.Release(t.Context(), holder, ps...); err != nil {
							return err
						}
					}
					return nil
				}()
			}()
		}
		for range 4 {
			if err := <-work; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestFaults cuts the connections and kills the server while permits are held. Calls wait and then
// succeed; held permits stay held.
func TestFaults(t *testing.T) {
	srv := testserver.OwnPostgres(t, testserver.PostgresConfig{})
	line := testserver.NewRelay(t, srv.Addr())
	l := opened(t, line.URL(srv.URL()), "faults")
	p := limit.Permit{Key: "a", Max: 2}
	granted := func(holder string, want bool) {
		t.Helper()
		if d, err := l.Acquire(testwait.Long(t), holder, time.Minute, p); err != nil || d.Granted != want {
			t.Fatalf("%+v, %v; want granted %t", d, err, want)
		}
	}
	granted("1", true)
	line.Sever()
	granted("2", true)
	granted("3", false)

	line.SetDown(true)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := l.Acquire(ctx, "4", time.Minute, p)
	if !errors.Is(err, limit.ErrUnavailable) || strings.Contains(err.Error(), srv.Password()) {
		t.Errorf("without a server: %v", err)
	}
	late := make(chan error, 1)
	go func() { late <- l.Release(testwait.Long(t), "1", p) }()
	line.SetDown(false)
	if err := <-late; err != nil {
		t.Fatalf("Release during a fault: %v", err)
	}
	granted("4", true)

	// the permits are on the disk before the server is killed
	if err := srv.Exec(t.Context(), "postgres", "CHECKPOINT"); err != nil {
		t.Fatal(err)
	}
	srv.Kill()
	if err := srv.Restart(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	if err := l.Renew(testwait.Long(t), "4", time.Minute, p); err != nil {
		t.Errorf("Renew after a restart: %v", err)
	}
	granted("5", false)
}

// TestClosed shows that a closed limiter returns ErrUnavailable.
func TestClosed(t *testing.T) {
	l := opened(t, "sqlite::memory:", "")
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Acquire(t.Context(), "1", time.Second, limit.Permit{Key: "a", Max: 1}); !errors.Is(err, limit.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// TestNew shows that all problems of a configuration are returned.
func TestNew(t *testing.T) {
	_, err := sqllimit.New(sqllimit.Config{Namespace: "a.b"})
	if err == nil || len(err.(interface{ Unwrap() []error }).Unwrap()) != 2 {
		t.Errorf("%v", err)
	}
}

// BenchmarkAcquireRelease measures a call of Acquire and one of Release, from 16 goroutines with a
// key each, and with one key for all.
func BenchmarkAcquireRelease(b *testing.B) {
	for name, url := range map[string]string{"sqlite": fileURL(b), "postgres": testserver.RequirePostgres(b).URL()} {
		for _, keys := range []int{16, 1} {
			b.Run(fmt.Sprintf("%s/keys=%d", name, keys), func(b *testing.B) {
				l := opened(b, url, testserver.Namespace())
				var n atomic.Int64
				b.SetParallelism(8)
				b.RunParallel(func(pb *testing.PB) {
					g := int(n.Add(1))
					p := limit.Permit{Key: fmt.Sprint(g % keys), Max: 1000}
					for pb.Next() {
						if d, err := l.Acquire(b.Context(), fmt.Sprint(g), time.Minute, p); err != nil || !d.Granted {
							b.Error(d, err)
							return
						}
						if err := l.Release(b.Context(), fmt.Sprint(g), p); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}
