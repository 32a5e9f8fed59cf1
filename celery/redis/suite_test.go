package redis_test

import (
	"log/slog"
	"net/url"
	"testing"
	"time"

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

// address returns the URL of a server that is reached through addr.
func address(srv *testserver.Redis, addr string) string {
	u := url.URL{Scheme: "redis", Host: addr, Path: "/0"}
	if srv.Password() != "" {
		u.User = url.UserPassword(srv.User(), srv.Password())
	}
	return u.String()
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
					URL: address(srv, line.Addr()), KeyPrefix: ns + ":", MaxResult: largest, Logger: quiet(),
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
