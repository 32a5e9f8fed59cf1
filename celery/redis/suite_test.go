package redis_test

import (
	"log/slog"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/celery/redis"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/resultstoretest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper),
		// The test's proxy may leave these goroutines when a connection is cut while a fault begins.
		goleak.IgnoreAnyFunction(testserver.ProxyPipe), goleak.IgnoreAnyFunction(testserver.ProxyRead))
}

// largest is MaxResult of the suite's stores, in bytes.
const largest = 2 << 20

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// options returns the options for a server that is reached through addr.
func options(srv *testserver.Redis, addr string) *goredis.UniversalOptions {
	return &goredis.UniversalOptions{Addrs: []string{addr}, Username: srv.User(), Password: srv.Password(), MaxRetryBackoff: 500 * time.Millisecond}
}

func TestStore(t *testing.T) {
	t.Parallel() // runs beside the tests that have their own server
	resultstoretest.Run(t, func(t testing.TB) *resultstoretest.Harness {
		srv := testserver.RequireRedis(t)
		line := testserver.NewRelay(t, srv.Addr())
		ns := testserver.Namespace()
		return &resultstoretest.Harness{
			Open: func(t testing.TB) resultstore.ResultStore {
				s, err := redis.New(redis.Config{
					Redis: options(srv, line.Addr()), KeyPrefix: ns + ":", MaxResult: largest, Logger: quiet(),
				})
				if err != nil {
					t.Fatal(err)
				}
				return s
			},
			Sever: func(testing.TB, resultstore.ResultStore) { line.Sever() },
			Restart: func(t testing.TB) {
				if err := srv.Restart(testwait.Long(t)); err != nil {
					t.Fatal(err)
				}
			},
			Down: func(testing.TB) func() {
				line.SetDown(true)
				return func() { line.SetDown(false) }
			},
			Prefix:   ns,
			Secret:   srv.Password(),
			Promises: resultstoretest.Promises{Notify: true, Gather: true, Durable: true, TTL: 100 * time.Millisecond, MaxResult: largest},
			Report:   "../../docs/capabilities/results-celery-redis.json",
		}
	})
}
