package faulttest

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/ledger"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

func TestCutConnectionsLoseNothing(t *testing.T) {
	each(t, func(t *testing.T, e *engine) {
		node := e.require(t)
		proxy := testserver.NewProxy(t, node.Addr())
		f := newFleet(t, proxy.URL(node.URL()))
		consumers := []*program{f.consumer(e.quick(settings{"TASK_MS": 10, "RESULTS": 1})), f.consumer(e.quick(settings{"TASK_MS": 10, "RESULTS": 1}))}
		p := f.producer(settings{"RATE": 150, "CONCURRENCY": 16, "RESULTS": 1})
		f.await("load", atLeast(50, ledger.Finished))
		last := often(1, 3)
		for round := range last + 1 {
			if round == last {
				if err := node.CloseAllConnections(t.Context()); err != nil {
					t.Fatal(err)
				}
			} else {
				proxy.Sever()
			}
			cut := time.Now()
			f.awaitWithin(recovery, "a task started after the connections were cut", startedAfter(cut.Add(100*time.Millisecond)))
			f.await("load again", atLeast(len(f.history().Tasks(ledger.Finished))+50, ledger.Finished))
		}
		p.terminate()
		f.await("all confirmed tasks finished", nothingLost)
		f.drain(consumers...)
		f.check(ledger.NoLoss, ledger.NoGhosts, ledger.Results)
		f.awaitEmpty(f.connect(node.URL()).Broker)
	})
}

// A black hole is a cut without any notice to the peers: only missing heartbeats reveal it.
func TestBlackHoleIsNoticed(t *testing.T) {
	eachLong(t, func(t *testing.T, e *engine) {
		node := e.require(t)
		proxy := testserver.NewProxy(t, node.Addr())
		f := newFleet(t, node.URL()+e.alert)
		p := f.producer(settings{"RATE": 50})
		f.consumer(e.quick(settings{"TASK_MS": 20, "CONCURRENCY": 2}))
		direct := f.url
		f.url = proxy.URL(node.URL()) + e.alert
		lost := f.consumer(e.quick(settings{"TASK_MS": 400, "CONCURRENCY": 4}))
		f.url = direct
		f.await("load", atLeast(100, ledger.Finished))
		f.await("the consumer that will be lost runs a task", running(lost))
		proxy.BlackHole(true, true)
		stuck := f.history().Open()
		f.await("others finished what the lost consumer had", func(h ledger.History) bool {
			again := 0
			for _, task := range stuck {
				if h[task.ID].Count(ledger.Started) > 1 || h[task.ID].Count(ledger.Finished) > 0 {
					again++
				}
			}
			return again == len(stuck) && len(h.Repeated(ledger.Started)) > 0
		})
		healed := time.Now()
		proxy.Heal()
		p.terminate()
		f.await("all confirmed tasks finished", nothingLost)
		f.drain(lost)
		f.check(ledger.NoLoss, ledger.NoGhosts, ledger.RepeatsOnlyOf(submittedBefore(f.history(), healed.Add(recovery))))
		f.awaitEmpty(f.connect(f.url).Broker)
	})
}
