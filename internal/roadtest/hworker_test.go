package roadtest_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/hworkerbroker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/internal/roadtest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/serializer"
)

// TestRoadOverHworker: tasks as JSON on four keys, results and events in memory. The layout has no namespaces, so that the
// road has a server of its own, which each test finds empty.
func TestRoadOverHworker(t *testing.T) {
	server := testserver.OwnRedis(t, testserver.RedisConfig{})
	t.Cleanup(func() { goleak.VerifyNone(t, goleak.IgnoreCurrent()) })
	o, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	roadtest.Run(t, func(t *testing.T) *roadtest.Harness {
		if _, err := server.Do(t.Context(), "FLUSHALL"); err != nil {
			t.Fatal(err)
		}
		results, bus := memresults.New(memresults.Config{}), memevents.New(memevents.Config{})
		return &roadtest.Harness{
			Broker: func(t *testing.T) broker.Broker {
				b, err := hworkerbroker.New(hworkerbroker.Config{
					Redis:   &redis.UniversalOptions{Addrs: []string{o.Addr}, Username: o.Username, Password: o.Password},
					Timeout: 5 * time.Second, Heartbeat: true,
				})
				if err != nil {
					t.Fatal(err)
				}
				return b
			},
			Results: func(*testing.T) resultstore.ResultStore { return results },
			Events:  func(*testing.T) events.EventBus { return bus },
			// No Sever: a cut connection loses no job.
			NoTimes: true, OpenQueues: true, Uncounted: true, Reasonless: true,
			Formats: []serializer.Format{serializer.JSONFormat{}},
		}
	})
}
