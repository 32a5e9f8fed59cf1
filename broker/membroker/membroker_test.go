package membroker_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/broker/membroker"
)

const maxBody = 8 << 20

// harness returns a Harness with a separate Server for each case.
func harness(testing.TB) *brokertest.Harness {
	s := membroker.NewServer(membroker.Config{MaxBody: maxBody, Logger: slog.New(slog.DiscardHandler)})
	return &brokertest.Harness{
		Open:  func(testing.TB) broker.Broker { return s.Connect() },
		Sever: func(_ testing.TB, b broker.Broker) { s.Disconnect(b.(*membroker.Broker)) },
		Bounded: func(_ testing.TB, most int, age time.Duration) broker.Broker {
			return membroker.NewServer(membroker.Config{DeadMax: most, DeadTTL: age}).Connect()
		},
		Restart: func(testing.TB) {
			s.Down()
			s.Up()
		},
		Down: func(testing.TB) func() {
			s.Down()
			return s.Up
		},
		Keys:    func(_ testing.TB, b broker.Broker, queue string) int { return b.(*membroker.Broker).Keys(queue) },
		Isolate: func(_ testing.TB, b broker.Broker) func() { return s.Isolate(b.(*membroker.Broker)) },
		Promises: brokertest.Promises{
			Durable: true, ExactCount: true, Dedupe: true, Order: true, Priorities: true, Fair: true, Bounds: true, ListKeys: true, Floor: true, Delays: true, Batch: true,
			Retry: true, SyncAck: true, Resize: true, Inspect: true, DeadLetters: true, Oldest: true, Find: true, Queues: true, List: true, DeadByID: true, Watch: true, Witness: true,
			MaxBody: maxBody,
		},
		Quiet:       50 * time.Millisecond,
		Secret:      "no-such-password",
		ModelChecks: 300,
		ModelSteps:  60,
	}
}

func TestConformance(t *testing.T) {
	brokertest.Run(t, func(t testing.TB) *brokertest.Harness {
		h := harness(t)
		h.Report = "../../docs/capabilities/broker-memory.json"
		return h
	})
}

func BenchmarkSuite(b *testing.B) { brokertest.Bench(b, harness) }
