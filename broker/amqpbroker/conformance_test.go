package amqpbroker_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

const testMaxBody = 6 << 20

func TestConformanceQuorum(t *testing.T) {
	ns := namespace(t, amqpbroker.Quorum)
	brokertest.Run(t, func(t testing.TB) *brokertest.Harness { return harness(t, ns, amqpbroker.Quorum) })
}

func TestConformanceClassic(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: quorum queues only")
	}
	ns := namespace(t, amqpbroker.Classic)
	brokertest.Run(t, func(t testing.TB) *brokertest.Harness {
		h := harness(t, ns, amqpbroker.Classic)
		h.Restart = nil // tried with quorum queues; the rest of the adapter is the same
		return h
	})
}

func BenchmarkBroker(b *testing.B) {
	ns := namespace(b, amqpbroker.Quorum)
	brokertest.Bench(b, func(t testing.TB) *brokertest.Harness { return harness(t, ns, amqpbroker.Quorum) })
}

// namespace is one for all cases, with the delay topology in it: declaring that anew for each case takes long, and would be
// counted as lateness of the case's first delayed message.
func namespace(t testing.TB, typ amqpbroker.QueueType) string {
	t.Helper()
	ns := testserver.Namespace()
	b := connect(t, amqpbroker.Config{Namespace: ns, QueueType: typ})
	q := declared(t, b)
	if err := b.PublishAt(bound(t), q, message("first"), time.Now().Add(time.Millisecond)); err != nil {
		t.Fatalf("PublishAt: %v", err)
	}
	return ns
}

// harness is a part of a namespace on the shared server. Each Broker reaches it through a relay of its own.
func harness(t testing.TB, namespace string, typ amqpbroker.QueueType) *brokertest.Harness {
	srv := testserver.RequireRabbit(t)
	if strings.Contains(t.Name(), "restart") {
		// Hundreds of queues that other cases left would have to be recovered in each restart.
		srv = testserver.OwnRabbit(t, testserver.RabbitConfig{})
	}
	var (
		mu     sync.Mutex
		relays = make(map[broker.Broker]*relay)
		spare  = newRelay(t, srv.Addr()) // made before the case begins to count goroutines
		down   bool
	)
	return &brokertest.Harness{
		Open: func(t testing.TB) broker.Broker {
			mu.Lock()
			defer mu.Unlock()
			line := spare
			if spare = nil; line == nil {
				line = newRelay(t, srv.Addr())
			}
			if down {
				line.set(true)
			}
			b, err := amqpbroker.New(amqpbroker.Config{
				URLs: []string{strings.Replace(srv.URL(), srv.Addr(), line.addr(), 1)}, Namespace: namespace, QueueType: typ, MaxBody: testMaxBody,
			})
			if err != nil {
				t.Fatalf("New: %v", err)
			}
			relays[b] = line
			return b
		},
		Sever: func(t testing.TB, b broker.Broker) {
			mu.Lock()
			defer mu.Unlock()
			relays[b].sever()
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
			for _, p := range relays {
				p.set(true)
			}
			return func() {
				mu.Lock()
				defer mu.Unlock()
				down = false
				for _, p := range relays {
					p.set(false)
				}
			}
		},
		Prefix: testserver.Namespace(),
		Secret: srv.Password(),
		Promises: brokertest.Promises{
			Durable: true, ExactCount: typ == amqpbroker.Quorum, Order: true, Priorities: true, Delays: true, Batch: true,
			SyncAck: true, Resize: true, Inspect: true, DeadLetters: true, Watch: true, MaxBody: testMaxBody,
		},
		ModelChecks: 5,
		ModelSteps:  15,
	}
}
