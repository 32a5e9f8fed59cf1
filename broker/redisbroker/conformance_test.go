package redisbroker_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

const (
	testMaxBody = 6 << 20
	testLease   = time.Second
)

// promises are the promises of a single server and of a cluster.
var promises = brokertest.Promises{
	Durable: true, ExactCount: true, Dedupe: true, Order: true, Priorities: true, Delays: true, Batch: true, Retry: true,
	SyncAck: true, Resize: true, Inspect: true, DeadLetters: true, Oldest: true, Find: true, Queues: true, List: true, Watch: true, Witness: true, Outlives: true, Fair: true,
	Bounds: true, Floor: true, ListKeys: true, MaxBody: testMaxBody,
}

func TestConformance(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{}) // it is restarted
	// The default lease: a delivery outlives every fault here.
	brokertest.Run(t, func(c testing.TB) *brokertest.Harness {
		h := singleHarness(c, srv, 0)
		h.Report = "../../docs/capabilities/broker-redis.json"
		return h
	})
}

// TestConformanceShortLease runs the suite with cuts that last longer than the lease, so that
// deliveries are lost.
func TestConformanceShortLease(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the default lease only")
	}
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{})
	brokertest.Run(t, func(c testing.TB) *brokertest.Harness {
		area := strings.Split(c.Name(), "/")[1]
		if !slices.Contains([]string{"lease", "retry", "fault", "model"}, area) || strings.Contains(c.Name(), "restart") {
			c.Skip("the lease makes no difference")
		}
		if area == "fault" {
			testserver.Thorough(c)
		}
		return singleHarness(c, srv, testLease)
	})
}

// waitsForLease reports whether a case waits for the end of a lease.
func waitsForLease(t testing.TB) bool {
	return slices.ContainsFunc([]string{"keep_their_lease", "every_call_is_bounded", "a_lost_connection"},
		func(part string) bool { return strings.Contains(t.Name(), part) })
}

// longLease returns a lease that is longer than all cuts and restarts here, except in cases that
// wait for its end.
func longLease(t testing.TB) time.Duration {
	if waitsForLease(t) {
		return 3 * time.Second
	}
	return 30 * time.Second
}

// pollOf returns the Config.Poll of a case: in the area bounds a notification must wake the
// consumers, unless a lease ends.
func pollOf(t testing.TB) time.Duration {
	if strings.Contains(t.Name(), "/bounds/") && !waitsForLease(t) {
		return patient
	}
	return redisbroker.DefaultPoll
}

// singleHarness returns a Harness whose Brokers each reach the server through a separate relay. If
// lease is not 0, cuts last longer than it.
func singleHarness(t testing.TB, srv *testserver.Redis, lease time.Duration) *brokertest.Harness {
	var (
		mu     sync.Mutex
		relays = make(map[broker.Broker]*testserver.Relay)
		spare  = testserver.NewRelay(t, srv.Addr()) // created before the case starts to count goroutines
		down   bool
	)
	ns, poll := testserver.Namespace(), pollOf(t)
	h := &brokertest.Harness{
		Open: func(t testing.TB) broker.Broker {
			mu.Lock()
			defer mu.Unlock()
			line := spare
			if spare = nil; line == nil {
				line = testserver.NewRelay(t, srv.Addr())
			}
			line.SetDown(down)
			b, err := redisbroker.New(redisbroker.Config{
				Redis:     &redis.UniversalOptions{Addrs: []string{line.Addr()}, Username: srv.User(), Password: srv.Password()},
				Namespace: ns, MaxBody: testMaxBody, Poll: poll,
			})
			if err != nil {
				t.Fatalf("New: %v", err)
			}
			relays[b] = line
			return b
		},
		Bounded: func(t testing.TB, most int, age time.Duration) broker.Broker {
			b, err := redisbroker.New(redisbroker.Config{
				Redis:     &redis.UniversalOptions{Addrs: []string{srv.Addr()}, Username: srv.User(), Password: srv.Password()},
				Namespace: ns, DeadMax: most, DeadTTL: age,
			})
			if err != nil {
				t.Fatalf("New: %v", err)
			}
			return b
		},
		Sever: func(t testing.TB, b broker.Broker) {
			mu.Lock()
			line := relays[b]
			mu.Unlock()
			if lease == 0 {
				line.Sever()
				return
			}
			line.SetDown(true)
			time.Sleep(lease + lease/4)
			line.SetDown(false)
		},
		Isolate: func(_ testing.TB, b broker.Broker) (back func()) {
			mu.Lock()
			line := relays[b]
			mu.Unlock()
			line.SetDown(true)
			return func() { line.SetDown(false) }
		},
		Restart: func(t testing.TB) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := srv.Restart(ctx); err != nil {
				t.Fatalf("restarting the server: %v", err)
			}
		},
		Down: func(t testing.TB) (up func()) {
			mu.Lock()
			defer mu.Unlock()
			down = true
			for _, line := range relays {
				line.SetDown(true)
			}
			return func() {
				mu.Lock()
				defer mu.Unlock()
				down = false
				for _, line := range relays {
					line.SetDown(false)
				}
			}
		},
		Secret:      srv.Password(),
		FairStarts:  2000,
		Keys:        func(t testing.TB, _ broker.Broker, queue string) int { return fairKeys(t, ns, queue, srv) },
		Promises:    promises,
		Leases:      lease,
		Quiet:       300 * time.Millisecond,
		ModelChecks: 10,
		ModelSteps:  15,
	}
	if lease == 0 {
		h.Leases = longLease(t)
	} else {
		h.Promises.Outlives = false
		h.ModelChecks = 4
	}
	return h
}
