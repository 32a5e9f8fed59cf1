package endtoend_test

import (
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/internal/endtoend"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/serializer"
)

// overHworker returns an Open with tasks as JSON in hworker's four Redis keys, and with results and
// events in memory. The layout has no namespaces, so no other test may use the server, which each
// case finds empty.
func overHworker(server *testserver.Redis) endtoend.Open {
	return func(t *testing.T) *endtoend.Harness {
		if _, err := server.Do(t.Context(), "FLUSHALL"); err != nil {
			t.Fatal(err)
		}
		results, bus := memresults.New(memresults.Config{}), memevents.New(memevents.Config{})
		return &endtoend.Harness{
			Broker: func(t *testing.T) broker.Broker {
				b, err := open.Broker(t.Context(), "hworker+"+server.URL(), open.Options{})
				if err != nil {
					t.Fatal(err)
				}
				return b
			},
			Results: func(*testing.T) resultstore.ResultStore { return results.View() },
			Events:  func(*testing.T) events.EventBus { return bus },
			// No Sever: a cut connection loses no job.
			NoTimes: true, OpenQueues: true, Uncounted: true, Reasonless: true,
			Formats: []serializer.Format{serializer.JSONFormat{}},
		}
	}
}
