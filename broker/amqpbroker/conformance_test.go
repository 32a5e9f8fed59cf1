package amqpbroker_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

const testMaxBody = 6 << 20

func TestConformanceQuorum(t *testing.T) {
	ns := namespace(t, amqpbroker.Quorum)
	// A separate server: hundreds of queues of other cases would have to be recovered in each restart.
	var restarted *testserver.Rabbit
	brokertest.Run(t, func(c testing.TB) *brokertest.Harness {
		if !strings.Contains(c.Name(), "restart") {
			h := harness(c, testserver.RequireRabbit(t), ns, amqpbroker.Quorum)
			h.Report = "../../docs/capabilities/broker-amqp.json"
			return h
		}
		if restarted == nil {
			restarted = testserver.OwnRabbit(t, testserver.RabbitConfig{})
		}
		h := harness(c, restarted, ns, amqpbroker.Quorum)
		// A delay level that forwards a message before the next level is up again repeats that after 3
		// minutes.
		h.Patience = 4 * time.Minute
		return h
	})
}

func TestConformanceClassic(t *testing.T) {
	testserver.Thorough(t)
	if testing.Short() {
		t.Skip("-short: quorum queues only")
	}
	t.Parallel()
	ns := namespace(t, amqpbroker.Classic)
	brokertest.Run(t, func(t testing.TB) *brokertest.Harness {
		// The type of the queues affects only the server's handling of messages, not the rest of the
		// adapter.
		area := strings.Split(t.Name(), "/")[1]
		if !slices.Contains([]string{"deliver", "settle", "priority", "delay", "dead_letters"}, area) {
			t.Skip("tried with quorum queues")
		}
		h := harness(t, testserver.RequireRabbit(t), ns, amqpbroker.Classic)
		h.Restart = nil // as above
		return h
	})
}

func BenchmarkBroker(b *testing.B) {
	ns := namespace(b, amqpbroker.Quorum)
	brokertest.Bench(b, func(t testing.TB) *brokertest.Harness {
		return harness(t, testserver.RequireRabbit(t), ns, amqpbroker.Quorum)
	})
}

// namespace returns one namespace for all cases, with its delay queues. Declaring these for each
// case takes long, and would count as lateness of the case's first delayed message.
func namespace(t testing.TB, typ amqpbroker.QueueType) string {
	t.Helper()
	ns := testserver.Namespace()
	b := connect(t, amqpbroker.Config{Namespace: ns, QueueType: typ})
	q := declared(t, b)
	if err := b.PublishAt(testwait.Long(t), q, message("first"), time.Now().Add(time.Millisecond)); err != nil {
		t.Fatalf("PublishAt: %v", err)
	}
	return ns
}

// harness returns a Harness with a namespace on a server. Each Broker reaches the server through a
// separate relay.
func harness(t testing.TB, srv *testserver.Rabbit, namespace string, typ amqpbroker.QueueType) *brokertest.Harness {
	var (
		mu     sync.Mutex
		relays = make(map[broker.Broker]*testserver.Relay)
		spare  = testserver.NewRelay(t, srv.Addr()) // created before the case starts to count goroutines
		down   bool
	)
	return &brokertest.Harness{
		Open: func(t testing.TB) broker.Broker {
			mu.Lock()
			defer mu.Unlock()
			line := spare
			if spare = nil; line == nil {
				line = testserver.NewRelay(t, srv.Addr())
			}
			if down {
				line.SetDown(true)
			}
			b, err := amqpbroker.New(amqpbroker.Config{
				Connect: amqpconnect.Config{URLs: []string{line.URL(srv.URL())}}, Namespace: namespace, QueueType: typ, MaxBody: testMaxBody,
			})
			if err != nil {
				t.Fatalf("New: %v", err)
			}
			relays[b] = line
			return b
		},
		Bounded: func(t testing.TB, most int, age time.Duration) broker.Broker {
			b, err := amqpbroker.New(amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{srv.URL()}}, Namespace: namespace, QueueType: typ, DeadMax: most, DeadTTL: age})
			if err != nil {
				t.Fatalf("New: %v", err)
			}
			return b
		},
		Sever: func(t testing.TB, b broker.Broker) {
			mu.Lock()
			defer mu.Unlock()
			relays[b].Sever()
		},
		Restart: func(t testing.TB) {
			// RabbitMQ, on a busy machine
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			defer cancel()
			if err := srv.Restart(ctx); err != nil {
				t.Fatalf("restarting the server: %v", err)
			}
		},
		Down: func(t testing.TB) (up func()) {
			mu.Lock()
			defer mu.Unlock()
			down = true
			for _, p := range relays {
				p.SetDown(true)
			}
			return func() {
				mu.Lock()
				defer mu.Unlock()
				down = false
				for _, p := range relays {
					p.SetDown(false)
				}
			}
		},
		Isolate: func(t testing.TB, b broker.Broker) (back func()) {
			mu.Lock()
			defer mu.Unlock()
			line := relays[b]
			line.SetDown(true)
			return func() { line.SetDown(false) }
		},
		Prefix: testserver.Namespace(),
		Secret: srv.Password(),
		Promises: brokertest.Promises{
			Durable: true, ExactCount: typ == amqpbroker.Quorum, Order: true, Priorities: true, Lanes: true, Floor: true, Delays: true, Batch: true,
			SyncAck: true, Resize: true, Inspect: true, DeadLetters: true, Watch: true, Witness: true, MaxBody: testMaxBody,
		},
		ModelChecks: 5,
		ModelSteps:  15,
	}
}
