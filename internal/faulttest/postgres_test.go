package faulttest

import (
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/ledger"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// TestKilledPostgresMoves kills PostgreSQL and starts it with the same data at another address, and
// later at the first one again. The URL of all processes has both addresses.
func TestKilledPostgresMoves(t *testing.T) {
	t.Parallel()
	node := testserver.OwnPostgres(t, testserver.PostgresConfig{})
	both := node.Addr() + "," + node.OtherAddr()
	f := newFleet(t, strings.Replace(node.URL(), node.Addr(), both, 1)+"&target_session_attrs=read-write")
	set := settings{"TASK_MS": 10, "LEASE_MS": shortLease.Milliseconds()}
	consumers := []*program{f.consumer(set), f.consumer(set)}
	p := f.producer(settings{"RATE": 150, "CONCURRENCY": 16})
	f.await("load", atLeast(100, ledger.Finished))
	var recovered time.Time
	for range 2 {
		node.Kill()
		if err := node.Move(t.Context()); err != nil {
			t.Fatal(err)
		}
		up := time.Now()
		f.awaitWithin(recovery, "a task started after the server had moved", startedAfter(up))
		recovered = time.Now().Add(recovery)
		f.await("load again", atLeast(len(f.history().Tasks(ledger.Finished))+100, ledger.Finished))
	}
	p.terminate()
	f.await("all confirmed tasks finished", nothingLost)
	f.drain(consumers...)
	f.check(ledger.NoLoss, ledger.NoGhosts, ledger.RepeatsOnlyOf(submittedBefore(f.history(), recovered)))
	f.awaitEmpty(f.connect(f.url).Broker)
}
