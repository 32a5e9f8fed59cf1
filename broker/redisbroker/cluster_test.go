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

// TestConformanceCluster runs the suite on a cluster: all keys of a queue are on one node, queues
// on different ones.
func TestConformanceCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a single server only")
	}
	t.Parallel()
	srv := testserver.OwnRedisCluster(t, testserver.RedisConfig{})
	brokertest.Run(t, func(c testing.TB) *brokertest.Harness {
		area := strings.Split(c.Name(), "/")[1]
		if slices.Contains([]string{"names", "prefetch", "watch"}, area) || strings.Contains(c.Name(), "keep_their_lease") ||
			strings.HasSuffix(c.Name(), "no_goroutine_is_left") { // which must not run beside another test
			c.Skip("that it is a cluster makes no difference")
		}
		if slices.Contains([]string{"close", "deliver", "lease", "priority", "settle"}, area) {
			// other areas run each script on the cluster, above all the histories of the model
			testserver.Thorough(c)
		}
		h := clusterHarness(c, srv)
		if area != "fault" || !testserver.IsThorough() { // a restart of all nodes takes seconds
			h.Restart = nil
		}
		return h
	})
}

func clusterHarness(t testing.TB, srv *testserver.RedisCluster) *brokertest.Harness {
	var (
		mu    sync.Mutex
		lines = make(map[broker.Broker]*line)
		down  bool
	)
	ns, poll := testserver.Namespace(), pollOf(t)
	return &brokertest.Harness{
		Open: func(t testing.TB) broker.Broker {
			mu.Lock()
			defer mu.Unlock()
			l := newLine()
			l.set(down)
			b, err := redisbroker.New(redisbroker.Config{
				Redis:     &redis.UniversalOptions{Addrs: srv.Addrs(), Username: srv.User(), Password: srv.Password(), Dialer: l.dial},
				Namespace: ns, MaxBody: testMaxBody, Poll: poll,
			})
			if err != nil {
				t.Fatalf("New: %v", err)
			}
			lines[b] = l
			return b
		},
		Sever: func(_ testing.TB, b broker.Broker) {
			mu.Lock()
			defer mu.Unlock()
			lines[b].sever()
		},
		Isolate: func(_ testing.TB, b broker.Broker) (back func()) {
			mu.Lock()
			line := lines[b]
			mu.Unlock()
			line.set(true)
			return func() { line.set(false) }
		},
		Restart: func(t testing.TB) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			for i := range srv.Nodes {
				if err := srv.RestartNode(ctx, i); err != nil {
					t.Fatalf("restarting node %d: %v", i, err)
				}
			}
		},
		Down: func(testing.TB) (up func()) {
			mu.Lock()
			defer mu.Unlock()
			down = true
			for _, l := range lines {
				l.set(true)
			}
			return func() {
				mu.Lock()
				defer mu.Unlock()
				down = false
				for _, l := range lines {
					l.set(false)
				}
			}
		},
		Secret:      srv.Password(),
		FairStarts:  2000,
		Keys:        func(t testing.TB, _ broker.Broker, queue string) int { return fairKeys(t, ns, queue, srv.Nodes...) },
		Promises:    promises,
		Leases:      longLease(t),
		Quiet:       300 * time.Millisecond,
		ModelChecks: 3,
		ModelSteps:  15,
	}
}
