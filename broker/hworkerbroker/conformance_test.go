package hworkerbroker_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/broker/hworkerbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

const (
	testMaxBody = 6 << 20
	testTimeout = 2 * time.Second
)

// TestConformance runs the suite. Promises: H2.
func TestConformance(t *testing.T) {
	var own *testserver.Redis // for the cases that restart the server
	brokertest.Run(t, func(c testing.TB) *brokertest.Harness {
		if !strings.Contains(c.Name(), "restart") {
			h := harness(c, testserver.RequireRedis(t))
			h.Report = "../../docs/capabilities/broker-hworker.json"
			return h
		}
		if own == nil {
			own = testserver.OwnRedis(t, testserver.RedisConfig{AOF: "always"})
		}
		return harness(c, own)
	})
}

func BenchmarkBroker(b *testing.B) {
	brokertest.Bench(b, func(t testing.TB) *brokertest.Harness { return harness(t, testserver.RequireRedis(t)) })
}

// harness returns a Harness with a prefix of names on a server. Each Broker reaches the server
// through a separate relay.
func harness(t testing.TB, srv *testserver.Redis) *brokertest.Harness {
	var (
		mu    sync.Mutex
		lines = make(map[broker.Broker]*testserver.Relay)
		down  bool
	)
	// longer than any case takes
	timeout := 30 * time.Second
	// after a cut, jobs in progress go back only after the timeout
	if strings.Contains(t.Name(), "keep_their_lease") || strings.Contains(t.Name(), "/fault/") {
		timeout = testTimeout
	}
	spare := testserver.NewRelay(t, srv.Addr()) // created before the case starts to count goroutines
	h := &brokertest.Harness{
		Open: func(t testing.TB) broker.Broker {
			mu.Lock()
			defer mu.Unlock()
			line := spare
			if spare = nil; line == nil {
				line = testserver.NewRelay(t, srv.Addr())
			}
			line.SetDown(down)
			b := open(t, line.URL(srv.URL()), hworkerbroker.Config{
				// an idle queue is polled at least every 100 ms
				Timeout: timeout, Heartbeat: true, MaxBody: testMaxBody, FailedSize: 5000, PollEvery: 4 * time.Millisecond,
			})
			lines[b] = line
			return b
		},
		Bounded: func(t testing.TB, most int, _ time.Duration) broker.Broker {
			return open(t, srv.URL(), hworkerbroker.Config{FailedSize: most})
		},
		Sever: func(_ testing.TB, b broker.Broker) {
			mu.Lock()
			defer mu.Unlock()
			lines[b].Sever()
		},
		Restart: func(t testing.TB) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := srv.Restart(ctx); err != nil {
				t.Fatalf("restarting the server: %v", err)
			}
		},
		Down: func(testing.TB) (up func()) {
			mu.Lock()
			defer mu.Unlock()
			down = true
			for _, p := range lines {
				p.SetDown(true)
			}
			return func() {
				mu.Lock()
				defer mu.Unlock()
				down = false
				for _, p := range lines {
					p.SetDown(false)
				}
			}
		},
		Prefix: testserver.Namespace() + ".",
		Secret: srv.Password(),
		Leases: timeout,
		Promises: brokertest.Promises{
			Durable: true, Order: true, Batch: true, Retry: true, SyncAck: true, Resize: true, Inspect: true, DeadLetters: true, Queues: true, List: true, Watch: true,
			MaxBody: testMaxBody, OpenQueues: true, Uncounted: true, Reasonless: true, Outlives: true,
		},
		Quiet:       250 * time.Millisecond,
		ModelChecks: 10,
	}
	return h
}

// open opens a Broker, which the caller closes.
func open(t testing.TB, url string, cfg hworkerbroker.Config) *hworkerbroker.Broker {
	t.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatalf("URL of the server: %v", err)
	}
	cfg.Redis = &redis.UniversalOptions{Addrs: []string{o.Addr}, Username: o.Username, Password: o.Password}
	b, err := hworkerbroker.New(cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return b
}
