package sqlresults_test

import (
	"context"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/resultstoretest"
	"github.com/swarmiji/swarmiji/resultstore/sqlresults"
)

// largest is the largest result of the stores of the suite.
const largest = 2 << 20

func promises() resultstoretest.Promises {
	return resultstoretest.Promises{Notify: true, Gather: true, Durable: true, TTL: 100 * time.Millisecond, MaxResult: largest}
}

func TestStore(t *testing.T)         { resultstoretest.Run(t, fileHarness) }
func TestStoreMemory(t *testing.T)   { resultstoretest.Run(t, memoryHarness) }
func TestStorePostgres(t *testing.T) { resultstoretest.Run(t, postgresHarness) }

func fileHarness(t testing.TB) *resultstoretest.Harness {
	cfg := sqlresults.Config{URL: fileURL(t), MaxResult: largest}
	return &resultstoretest.Harness{
		Open:     func(t testing.TB) resultstore.ResultStore { return open(t, cfg) },
		Restart:  func(testing.TB) {}, // there is no server: what a killed process leaves is TestKilled's
		Prefix:   testserver.Namespace(),
		Promises: promises(),
		Report:   "../../docs/capabilities/results-sqlite.json",
	}
}

// memoryHarness has stores that share the one connection that a database in memory has.
func memoryHarness(t testing.TB) *resultstoretest.Harness {
	root := open(t, sqlresults.Config{URL: "sqlite::memory:", MaxResult: largest})
	t.Cleanup(func() { closed(t, root) })
	p := promises()
	p.Durable = false
	return &resultstoretest.Harness{
		Open:     func(testing.TB) resultstore.ResultStore { return sqlresults.Share(root) },
		Prefix:   testserver.Namespace(),
		Promises: p,
	}
}

func postgresHarness(t testing.TB) *resultstoretest.Harness {
	p := testserver.RequirePostgres(t)
	ns := testserver.Namespace() // many namespaces share one database
	up := func(t testing.TB) {
		if err := p.Restart(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	return &resultstoretest.Harness{
		Open: func(t testing.TB) resultstore.ResultStore {
			return open(t, sqlresults.Config{URL: p.URL(), Namespace: ns, Connections: 4, MaxResult: largest})
		},
		Sever: func(t testing.TB, _ resultstore.ResultStore) {
			if err := p.CloseAllConnections(within(t, 20*time.Second)); err != nil {
				t.Fatal(err)
			}
		},
		Restart: func(t testing.TB) {
			p.Kill()
			up(t)
		},
		Down: func(t testing.TB) func() {
			p.Kill()
			return func() { up(t) }
		},
		Prefix:   ns,
		Secret:   p.Password(),
		Promises: promises(),
		Report:   "../../docs/capabilities/results-postgres.json",
	}
}

func closed(t testing.TB, s resultstore.ResultStore) {
	t.Helper()
	if err := s.Close(context.WithoutCancel(within(t, 20*time.Second))); err != nil {
		t.Errorf("Close: %v", err)
	}
}
