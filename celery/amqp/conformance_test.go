package amqp_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/celery/amqp"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

const testMaxBody = 6 << 20

// TestConformance runs the suite of the port.
func TestConformance(t *testing.T) {
	warmDelays(t)
	var restarted *testserver.Rabbit
	brokertest.Run(t, func(c testing.TB) *brokertest.Harness {
		if !strings.Contains(c.Name(), "restart") {
			h := harness(c, testserver.RequireRabbit(t))
			h.Report = "../../docs/capabilities/broker-celery.json"
			return h
		}
		if restarted == nil {
			restarted = testserver.OwnRabbit(t, testserver.RabbitConfig{})
		}
		h := harness(c, restarted)
		// A delay level that forwards a message before the next level is up again repeats that after 3
		// minutes.
		h.Patience = 4 * time.Minute
		return h
	})
}

// warmDelays declares the delay queues, which takes long and would count as lateness of the first
// delayed message.
func warmDelays(t testing.TB) {
	t.Helper()
	b := open(t, amqp.Config{Connect: amqpconnect.Config{URLs: []string{testserver.RequireRabbit(t).URL()}}})
	defer func() {
		if err := b.Close(testwait.Long(t)); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	q := testserver.Namespace()
	if err := b.Declare(testwait.Long(t), broker.Queue{Name: q}); err != nil {
		t.Fatalf("Declare: %v", err)
	}
	if err := b.PublishAt(testwait.Long(t), q, &broker.Message{ID: "first"}, time.Now().Add(time.Millisecond)); err != nil {
		t.Fatalf("PublishAt: %v", err)
	}
}

// open returns a Broker, which the caller closes.
func open(t testing.TB, cfg amqp.Config) *amqp.Broker {
	t.Helper()
	b, err := amqp.New(cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return b
}

// harness returns a Harness with a prefix of names on a server. Each Broker reaches the server
// through a separate relay.
func harness(t testing.TB, srv *testserver.Rabbit) *brokertest.Harness {
	var (
		mu     sync.Mutex
		relays = make(map[broker.Broker]*testserver.Relay)
		spare  = testserver.NewRelay(t, srv.Addr()) // created before the case starts to count goroutines
		down   bool
	)
	setDown := func(d bool) {
		mu.Lock()
		defer mu.Unlock()
		down = d
		for _, p := range relays {
			p.SetDown(d)
		}
	}
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
			b := open(t, amqp.Config{Connect: amqpconnect.Config{URLs: []string{line.URL(srv.URL())}}, MaxBody: testMaxBody})
			relays[b] = line
			return b
		},
		Bounded: func(t testing.TB, most int, age time.Duration) broker.Broker {
			return open(t, amqp.Config{Connect: amqpconnect.Config{URLs: []string{srv.URL()}}, DeadMax: most, DeadTTL: age})
		},
		Sever: func(_ testing.TB, b broker.Broker) {
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
		Down: func(testing.TB) (up func()) {
			setDown(true)
			return func() { setDown(false) }
		},
		Prefix: testserver.Namespace() + ".",
		Secret: srv.Password(),
		Promises: brokertest.Promises{
			Durable: true, Order: true, Delays: true, Batch: true, Resize: true, Inspect: true, DeadLetters: true, Watch: true, MaxBody: testMaxBody,
		},
		ModelChecks: 5,
		ModelSteps:  15,
	}
}
