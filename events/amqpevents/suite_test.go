package amqpevents_test

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/amqpevents"
	"github.com/swarmiji/swarmiji/events/eventstest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/task"
)

// Promises: S6.
func TestBus(t *testing.T) {
	t.Parallel() // runs beside TestTLS, which has its own server
	eventstest.Run(t, harness)
}

// suiteBuffer is smaller than the number of events that the suite publishes. It is small because
// events are slow under the race detector.
const suiteBuffer = 2000

func harness(t testing.TB) *eventstest.Harness {
	srv := testserver.RequireRabbit(t)
	line := testserver.NewRelay(t, srv.Addr())
	ns := testserver.Namespace()
	retain := func(t testing.TB, r events.Retention) events.EventBus {
		b, err := amqpevents.New(amqpevents.Config{
			Connect: amqpconnect.Config{URLs: []string{line.URL(srv.URL())}, Backoff: task.Backoff{Max: 500 * time.Millisecond}}, Namespace: ns, Logger: quiet(), Retain: r, Buffer: suiteBuffer,
		})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return &eventstest.Harness{
		Open:   func(t testing.TB) events.EventBus { return retain(t, events.Retention{}) },
		Retain: retain,
		Sever:  func(testing.TB, events.EventBus) { line.Sever() },
		Restart: func(t testing.TB) {
			if err := srv.Restart(testwait.Long(t)); err != nil {
				t.Fatal(err)
			}
		},
		Down: func(testing.TB) func() {
			line.SetDown(true)
			return func() { line.SetDown(false) }
		},
		Secret: srv.Password(),
		Buffer: suiteBuffer,
		Report: "../../docs/capabilities/events-amqp.json",
	}
}
