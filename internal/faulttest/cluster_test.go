package faulttest

import (
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/ledger"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

func TestClusterLosesNothing(t *testing.T) {
	testserver.Thorough(t) // three RabbitMQ nodes use two cores for a minute and a half
	if testing.Short() {
		t.Skip("starts three servers")
	}
	t.Parallel() // it has its own servers, as the other cluster tests do
	cluster := testserver.OwnRabbitCluster(t, testserver.RabbitConfig{})
	f := newFleet(t, strings.Join(cluster.URLs(), ","))
	consumers := []*program{f.consumer(settings{"TASK_MS": 10}), f.consumer(settings{"TASK_MS": 10})}
	p := f.producer(settings{"RATE": 100, "CONCURRENCY": 16})
	f.await("load", atLeast(100, ledger.Finished))
	_, queue := broker.Locate(f.connect(f.url).Broker, f.queue)
	leader, err := cluster.Leader(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	cluster.KillNode(leader)
	killed := time.Now()
	f.awaitWithin(2*recovery, "a task started after the leader was killed", startedAfter(killed.Add(100*time.Millisecond)))
	f.await("load on two nodes", atLeast(len(f.history().Tasks(ledger.Finished))+100, ledger.Finished))
	if err := cluster.RestartNode(t.Context(), leader); err != nil {
		t.Fatal(err)
	}
	f.await("load on three nodes again", atLeast(len(f.history().Tasks(ledger.Finished))+100, ledger.Finished))

	// A node in the minority pauses. Its clients connect to another node, and the majority continues
	// to work.
	if err := cluster.Isolate(t.Context(), 0); err != nil { // the first URL, which clients try first
		t.Fatal(err)
	}
	isolated := time.Now()
	f.awaitWithin(patience, "a task started after a node was cut off", startedAfter(isolated.Add(time.Second)))
	f.await("load on the majority", atLeast(len(f.history().Tasks(ledger.Finished))+100, ledger.Finished))
	if err := cluster.Rejoin(t.Context(), 0); err != nil {
		t.Fatal(err)
	}

	// Without a majority no task is confirmed, and no confirmed task is lost.
	cluster.KillNode(1)
	cluster.KillNode(2)
	alone := time.Now()
	f.await("submissions end undecided while there is no majority", func(ledger.History) bool { return time.Since(alone) > 15*time.Second })
	started := make(chan error, 2)
	for _, i := range []int{1, 2} {
		go func() { started <- cluster.RestartNode(t.Context(), i) }()
	}
	for range 2 {
		if err := <-started; err != nil {
			t.Fatal(err)
		}
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
