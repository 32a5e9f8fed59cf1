package endtoend_test

import (
	"os"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/internal/endtoend"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/resultstore"
)

// TestRoadOverPostgres runs the suite with tasks and results in one PostgreSQL database, through a
// proxy that can cut connections, and with events in memory.
func TestRoadOverPostgres(t *testing.T) {
	server := testserver.RequirePostgres(t)
	noLeaks(t)
	in := over(server.URL(), server.Addr())
	endtoend.Run(t, func(t *testing.T) *endtoend.Harness { return withBus(in(t)) })
}

// TestRoadOverSQLite runs the suite with tasks and results in one SQLite file, and with events in
// memory.
func TestRoadOverSQLite(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "road") //nolint:usetesting // commits on a disk are slow
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	noLeaks(t)
	url := "sqlite://" + dir + "/road.db"
	endtoend.Run(t, func(*testing.T) *endtoend.Harness {
		o := open.Options{Namespace: testserver.Namespace(), Logger: quiet()}
		return withBus(&endtoend.Harness{
			Broker:  func(t *testing.T) broker.Broker { return opened(t, url, o, open.Broker) },
			Results: func(t *testing.T) resultstore.ResultStore { return opened(t, url, o, open.Results) },
			// No Sever: a file has no connection to cut.
			KeepsHeld: true,
		})
	})
}

// withBus gives a harness a bus in memory, for all its processes.
func withBus(h *endtoend.Harness) *endtoend.Harness {
	bus := memevents.New(memevents.Config{})
	h.Events = func(*testing.T) events.EventBus { return bus }
	h.Revocations = nil
	return h
}
