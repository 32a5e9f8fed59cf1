package endtoend_test

import (
	"os"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/endtoend"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/resultstore"
)

// TestRoadOverPostgres runs the suite with all parts in one PostgreSQL database. A proxy can cut
// the broker's connections.
func TestRoadOverPostgres(t *testing.T) {
	server := testserver.RequirePostgres(t)
	noLeaks(t)
	endtoend.Run(t, briefly(over(server.URL(), server.Addr())))
}

// TestRoadOverPgBouncer is TestRoadOverPostgres through PgBouncer, with polling.
func TestRoadOverPgBouncer(t *testing.T) {
	testserver.Thorough(t)
	pooler := testserver.RequirePgBouncer(t)
	noLeaks(t)
	endtoend.Run(t, over(pooler.Polled(testserver.RequirePostgres(t).URL()), pooler.Addr()))
}

// TestRoadOverSQLite runs the suite with all parts in one SQLite file.
func TestRoadOverSQLite(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "road") //nolint:usetesting // commits on a disk are slow
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	noLeaks(t)
	url := "sqlite://" + dir + "/road.db"
	endtoend.Run(t, briefly(func(*testing.T) *endtoend.Harness {
		o := open.Options{Namespace: testserver.Namespace(), Logger: quiet()}
		return &endtoend.Harness{
			Broker:      func(t *testing.T) broker.Broker { return opened(t, url, o, open.Broker) },
			Results:     func(t *testing.T) resultstore.ResultStore { return opened(t, url, o, open.Results) },
			Events:      func(t *testing.T) events.EventBus { return opened(t, url, o, open.Events) },
			Revocations: func(t *testing.T) events.EventBus { return opened(t, url, o, open.Revocations) },
			// No Sever: a file has no connection to cut.
			KeepsHeld: true,
		}
	}))
}
