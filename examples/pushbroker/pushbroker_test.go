package pushbroker_test

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/examples/pushbroker"
	"github.com/swarmiji/swarmiji/internal/roadtest"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
)

// harness runs the tests of producer and consumer over a hub.
func harness(hub *pushbroker.Hub) *roadtest.Harness {
	results, bus := memresults.New(memresults.Config{}), memevents.New(memevents.Config{})
	return &roadtest.Harness{
		Broker:  func(*testing.T) broker.Broker { return hub.Connect() },
		Results: func(*testing.T) resultstore.ResultStore { return results.View() },
		Events:  func(*testing.T) events.EventBus { return bus.View() },
	}
}

// Promises: S4.
func TestRoadAtOnce(t *testing.T) {
	roadtest.Run(t, func(*testing.T) *roadtest.Harness {
		h := harness(pushbroker.AtOnce())
		h.NoQueues = true
		return h
	})
}

// Promises: S4.
func TestRoadPush(t *testing.T) {
	roadtest.Run(t, func(*testing.T) *roadtest.Harness { return harness(pushbroker.Push()) })
}

// TestPortPush holds Push to the port. AtOnce cannot be held to it: nearly every case publishes before anybody listens.
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
