package redisevents_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/eventstest"
	"github.com/swarmiji/swarmiji/events/redisevents"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

func TestBus(t *testing.T) {
	t.Parallel() // runs beside the tests that have their own server
	eventstest.Run(t, func(t testing.TB) *eventstest.Harness {
		h := harness(t)
		h.Report = "../../docs/capabilities/events-redis.json"
		return h
	})
}

// suiteBuffer is smaller than the number of events that the suite publishes. It is small because
// events are slow under the race detector.
const suiteBuffer = 2000

func harness(t testing.TB) *eventstest.Harness {
	srv := testserver.RequireRedis(t)
	line := testserver.NewRelay(t, srv.Addr())
	h := harnessOf(options(srv, line.Addr()))
	h.Sever = func(testing.TB, events.EventBus) { line.Sever() }
	h.Restart = func(t testing.TB) {
		if err := srv.Restart(testwait.Long(t)); err != nil {
			t.Fatal(err)
		}
	}
	h.Down = func(testing.TB) func() {
		line.SetDown(true)
		return func() { line.SetDown(false) }
	}
	return h
}

// harnessOf returns a harness without faults.
func harnessOf(o *redis.UniversalOptions) *eventstest.Harness {
	ns := testserver.Namespace()
	quick := *o
	quick.MaxRetryBackoff = 500 * time.Millisecond
	open := func(t testing.TB, r events.Retention) events.EventBus {
		b, err := redisevents.New(redisevents.Config{
			Redis: &quick, Namespace: ns, Logger: quiet(), Retain: r, Buffer: suiteBuffer,
		})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return &eventstest.Harness{
		Open:   func(t testing.TB) events.EventBus { return open(t, events.Retention{}) },
		Retain: open,
		Secret: o.Password,
		Buffer: suiteBuffer,
	}
}
