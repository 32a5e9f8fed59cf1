package pushbroker_test

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/examples/pushbroker"
	"github.com/swarmiji/swarmiji/internal/endtoend"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
)

// harness runs the tests of producer and consumer over a hub.
func harness(hub *pushbroker.Hub) *endtoend.Harness {
	results, bus := memresults.New(memresults.Config{}), memevents.New(memevents.Config{})
	return &endtoend.Harness{
		Broker:  func(*testing.T) broker.Broker { return hub.Connect() },
		Results: func(*testing.T) resultstore.ResultStore { return results.View() },
		Events:  func(*testing.T) events.EventBus { return bus.View() },
	}
}

// Promises: S4.
func TestRoadAtOnce(t *testing.T) {
	t.Parallel() // its cases mostly wait
	endtoend.Run(t, func(*testing.T) *endtoend.Harness {
		h := harness(pushbroker.AtOnce())
		h.NoQueues = true
		return h
	})
}

// Promises: S4.
func TestRoadPush(t *testing.T) {
	t.Parallel() // its cases mostly wait
	endtoend.Run(t, func(*testing.T) *endtoend.Harness { return harness(pushbroker.Push()) })
}

// TestPortPush runs the suite of the port over Push. AtOnce cannot pass it, because nearly every
// case publishes before a consumer listens.
func TestPortPush(t *testing.T) {
	brokertest.Run(t, func(testing.TB) *brokertest.Harness {
		hub := pushbroker.Push()
		return &brokertest.Harness{
			Open:     func(testing.TB) broker.Broker { return hub.Connect() },
			Quiet:    200 * time.Millisecond,
			Promises: brokertest.Promises{ExactCount: true, Order: true, Delays: true, Retry: true, DeadLetters: true},
		}
	})
}
