package natsbroker_test

import (
	"context"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/broker/natsbroker"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/task"
)

const (
	testMaxBody = 6 << 20
	testLease   = time.Second
	testQuiet   = 150 * time.Millisecond // the server answers within a few milliseconds
)

func TestConformance(t *testing.T) {
	var restarted *testserver.NATS
	brokertest.Run(t, func(c testing.TB) *brokertest.Harness {
		if !strings.Contains(c.Name(), "restart") {
			h := harness(c, testserver.RequireNATS(t), 0)
			h.Report = "../../docs/capabilities/broker-nats.json"
			return h
		}
		if restarted == nil {
			restarted = testserver.OwnNATS(t, testserver.NATSConfig{})
		}
		return harness(c, restarted, 0)
	})
}

// TestConformanceLosses cuts connections for longer than the lease, so that held messages are lost.
// It runs only cases for which that matters.
func TestConformanceLosses(t *testing.T) {
	t.Parallel()
	cases := regexp.MustCompile("lost_delivery|a_cut_connection|to_another_process|neighbour|the_delivery_is_lost|everything_goes_on|lost_in_cut|lost_in_restarts")
	ran := 0
	brokertest.Run(t, func(c testing.TB) *brokertest.Harness {
		if !cases.MatchString(c.Name()) {
			c.Skip("tried with connections that are cut for a moment")
		}
		ran++
		srv := testserver.RequireNATS(t)
		if strings.Contains(c.Name(), "restart") {
			srv = testserver.OwnNATS(t, testserver.NATSConfig{})
		}
		return harness(c, srv, testLease*12/10)
	})
	if ran < 10 {
		t.Errorf("only %d cases were run", ran)
	}
}

func BenchmarkBroker(b *testing.B) {
	brokertest.Bench(b, func(t testing.TB) *brokertest.Harness {
		h := harness(t, testserver.RequireNATS(t), 0)
		h.Open = func(t testing.TB) broker.Broker {
			return open(t, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{testserver.RequireNATS(t).URL()}}})
		}
		return h
	})
}

// relayLine is the connection of one Broker to the server.
type relayLine struct {
	relay *testserver.Relay
	own   int // its own cuts in progress
	all   int // cuts in progress of the whole server
	mu    sync.Mutex
}

func (l *relayLine) cut(own, all int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own += own
	l.all += all
	l.relay.SetDown(l.own+l.all > 0)
}

// harness returns a Harness with a namespace on a server. Each Broker reaches it through a separate
// relay. A cut connection, and the server when it is restarted, are down for at least the time
// away. Deliveries outlive a time shorter than their lease.
func harness(t testing.TB, srv *testserver.NATS, away time.Duration) *brokertest.Harness {
	var (
		mu    sync.Mutex
		lines = make(map[broker.Broker]*relayLine)
		// created before the case starts to count goroutines
		spare = &relayLine{relay: testserver.NewRelay(t, srv.Addr())}
		ns    = testserver.Namespace()
		down  int
	)
	cutAll := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		down += n
		for _, l := range lines {
			l.cut(0, n)
		}
	}
	return &brokertest.Harness{
		Open: func(t testing.TB) broker.Broker {
			mu.Lock()
			defer mu.Unlock()
			l := spare
			if spare = nil; l == nil {
				l = &relayLine{relay: testserver.NewRelay(t, srv.Addr())}
			}
			l.cut(0, down)
			b := open(t, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{l.relay.URL(srv.URL())}, Backoff: task.Backoff{Max: 200 * time.Millisecond}}, Namespace: ns, MaxBody: testMaxBody})
			lines[b] = l
			return b
		},
		Bounded: func(t testing.TB, most int, age time.Duration) broker.Broker {
			return open(t, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{srv.URL()}}, Namespace: ns, DeadMax: most, DeadTTL: age})
		},
		Sever: func(t testing.TB, b broker.Broker) {
			mu.Lock()
			l := lines[b]
			mu.Unlock()
			if away == 0 {
				l.relay.Sever()
				return
			}
			l.cut(1, 0)
			<-time.After(away)
			l.cut(-1, 0)
		},
		Isolate: func(_ testing.TB, b broker.Broker) (back func()) {
			mu.Lock()
			l := lines[b]
			mu.Unlock()
			l.cut(1, 0)
			return func() { l.cut(-1, 0) }
		},
		Restart: func(t testing.TB) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			cutAll(1)
			begin := time.Now()
			if err := srv.Restart(ctx); err != nil {
				t.Fatalf("restarting the server: %v", err)
			}
			<-time.After(away - time.Since(begin))
			cutAll(-1)
		},
		Down: func(t testing.TB) (up func()) {
			cutAll(1)
			return func() { cutAll(-1) }
		},
		Secret: srv.Password(),
		Promises: brokertest.Promises{
			Durable: true, ExactCount: true, Dedupe: true, Order: true, Priorities: true, Lanes: true, Floor: true, Delays: true, Batch: true, Retry: true,
			SyncAck: true, Resize: true, Inspect: true, DeadLetters: true, Oldest: true, Find: true, Queues: true, List: true, DeadByID: true, Watch: true, Witness: true, Outlives: away == 0, Forgets: true, MaxBody: testMaxBody,
		},
		Leases:      testLease,
		Quiet:       testQuiet,
		ModelChecks: 8,
		ModelSteps:  20,
	}
}

func open(t testing.TB, cfg natsbroker.Config) *natsbroker.Broker {
	t.Helper()
	b, err := natsbroker.New(cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return b
}
