package natsevents_test

import (
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker/natsbroker/embedded"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/eventstest"
	"github.com/swarmiji/swarmiji/events/natsevents"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/task"
)

func TestBus(t *testing.T) {
	eventstest.Run(t, func(t testing.TB) *eventstest.Harness {
		h := harness(t)
		area, name, _ := strings.Cut(strings.TrimPrefix(t.Name(), "TestBus/"), "/")
		if area == "fanout" || area == "retain" && (name == "a_filter" || name == "kept_types" || name == "live_subscriptions_are_as_before" ||
			name == "a_late_listener_gets_what_was_before" || name == "no_gap_and_no_repeat_while_others_publish") {
			h.Quiet = 200 * time.Millisecond
		}
		h.Report = "../../docs/capabilities/events-nats.json"
		return h
	})
}

// TestBusInProcess runs the cases that depend on the connection: within a process its two ends have
// no buffers between them. The other code of the adapter is the same.
func TestBusInProcess(t *testing.T) {
	eventstest.Run(t, func(t testing.TB) *eventstest.Harness {
		_, name, _ := strings.Cut(t.Name(), "/")
		area, _, _ := strings.Cut(name, "/")
		switch {
		case area == "flow", area == "close":
		case name == "fanout/several_publishers", name == "retain/no_gap_and_no_repeat_while_others_publish",
			name == "retain/a_publisher_that_has_gone", name == "retain/a_late_listener_gets_what_was_before":
		default:
			t.Skip("TestBus puts the same code to this test")
		}
		return harnessInProcess(t)
	})
}

func BenchmarkBus(b *testing.B) { eventstest.Bench(b, harness) }

// suiteBuffer is smaller than the number of events that the suite publishes. It is small because
// events are slow under the race detector.
const suiteBuffer = 2000

func harness(t testing.TB) *eventstest.Harness {
	srv := testserver.RequireNATS(t)
	line := testserver.NewRelay(t, srv.Addr())
	ns := testserver.Namespace()
	bus := func(t testing.TB, r events.Retention) events.EventBus {
		return newBus(t, natsevents.Config{Connect: natsconnect.Config{URLs: []string{line.URL(srv.URL())}}, Namespace: ns, Retain: r})
	}
	return &eventstest.Harness{
		Open:   func(t testing.TB) events.EventBus { return bus(t, events.Retention{}) },
		Retain: bus,
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
	}
}

func harnessInProcess(t testing.TB) *eventstest.Harness {
	srv := server(t, embedded.Options{})
	bus := func(t testing.TB, r events.Retention) events.EventBus {
		return newBus(t, natsevents.Config{Connect: natsconnect.Config{InProcess: srv}, Retain: r})
	}
	return &eventstest.Harness{
		Open:   func(t testing.TB) events.EventBus { return bus(t, events.Retention{}) },
		Retain: bus,
		Buffer: suiteBuffer,
	}
}

// newBus makes a bus for the suite, which closes it.
func newBus(t testing.TB, c natsevents.Config) *natsevents.Bus {
	t.Helper()
	c.Logger, c.Connect.Backoff = quiet(), task.Backoff{Max: 500 * time.Millisecond}
	c.Buffer = suiteBuffer
	c.Batch.Linger = 5 * time.Millisecond // most cases wait for single events
	b, err := natsevents.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
