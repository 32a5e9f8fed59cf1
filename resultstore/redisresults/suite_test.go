package redisresults_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/redisresults"
	"github.com/swarmiji/swarmiji/resultstore/resultstoretest"
)

// largest is MaxResult of the suite's stores, in bytes.
const largest = 2 << 20

func TestStore(t *testing.T) {
	t.Parallel() // runs beside the tests that have their own server
	resultstoretest.Run(t, func(t testing.TB) *resultstoretest.Harness {
		h := harness(t)
		h.Report = "../../docs/capabilities/results-redis.json"
		return h
	})
}

func harness(t testing.TB) *resultstoretest.Harness {
	srv := testserver.RequireRedis(t)
	line := testserver.NewRelay(t, srv.Addr())
	h := harnessOf(options(srv, line.Addr()))
	h.Sever = func(testing.TB, resultstore.ResultStore) { line.Sever() }
	h.Restart = func(t testing.TB) {
		if err := srv.Restart(testwait.Long(t)); err != nil {
			t.Fatal(err)
		}
	}
	h.Down = func(testing.TB) func() {
		line.SetDown(true)
		return func() { line.SetDown(false) }
	}
	return h
}

// harnessOf returns a harness without faults.
func harnessOf(o *redis.UniversalOptions) *resultstoretest.Harness {
	ns := testserver.Namespace()
	quick := *o
	quick.MaxRetryBackoff = 500 * time.Millisecond
	return &resultstoretest.Harness{
		Open: func(t testing.TB) resultstore.ResultStore {
			s, err := redisresults.New(redisresults.Config{
				Redis: &quick, Namespace: ns, MaxResult: largest, Logger: quiet(),
			})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Prefix:   ns,
		Secret:   o.Password,
		Promises: resultstoretest.Promises{Notify: true, Gather: true, Claim: true, Swap: true, Batches: true, Checkpoints: true, Durable: true, TTL: 100 * time.Millisecond, MaxResult: largest},
	}
}
