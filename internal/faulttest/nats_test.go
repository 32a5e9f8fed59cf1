package faulttest

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/ledger"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// With three replicas the loss of the leading server, or of a majority for a while, loses no task.
func TestNATSClusterLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three servers")
	}
	t.Parallel()
	cluster := testserver.OwnNATSCluster(t, testserver.NATSConfig{})
	f := newFleet(t, cluster.URL()+"?replicas=3")
	set := settings{"TASK_MS": 10, "LEASE_MS": shortLease.Milliseconds()}
	consumers := []*program{f.consumer(set), f.consumer(set)}
	p := f.producer(settings{"RATE": 100, "CONCURRENCY": 16})
	f.await("load", atLeast(100, ledger.Finished))
	leader, err := cluster.Leader(t.Context(), natsStream)
	must(t, err)
	cluster.KillNode(leader)
	killed := time.Now()
	f.awaitWithin(2*recovery, "a task started after the leader was killed", startedAfter(killed.Add(100*time.Millisecond)))
	f.await("load on two servers", atLeast(len(f.history().Tasks(ledger.Finished))+100, ledger.Finished))
	must(t, cluster.RestartNode(t.Context(), leader))
	f.await("load on three servers again", atLeast(len(f.history().Tasks(ledger.Finished))+100, ledger.Finished))

	// Without a majority no task is confirmed, and no confirmed task is lost.
	cluster.KillNode(1)
	cluster.KillNode(2)
	alone := time.Now()
	f.await("submissions end undecided while there is no majority", func(h ledger.History) bool {
		return time.Since(alone) > 3*time.Second && len(h.Lacking(ledger.Submitted, ledger.Confirmed)) > 0
	})
	started := make(chan error, 2)
	for _, i := range []int{1, 2} {
		go func() { started <- cluster.RestartNode(t.Context(), i) }()
	}
	for range 2 {
		must(t, <-started)
	}
	back := time.Now()
	f.awaitWithin(patience, "a task started after the majority was back", startedAfter(back))
	f.await("load again", atLeast(len(f.history().Tasks(ledger.Finished))+100, ledger.Finished))
	p.terminate()
	f.await("all confirmed tasks finished", nothingLost)
	f.drain(consumers...)
	f.check(ledger.NoLoss, ledger.NoGhosts)
	f.awaitEmpty(f.connect(f.url).Broker)
}

// natsStream is the stream of these tests' namespace.
const natsStream = "SWJ_default"
