package faulttest

import (
	"testing"

	"github.com/swarmiji/swarmiji/internal/ledger"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

func TestWithoutFaultsEveryTaskRunsOnce(t *testing.T) {
	each(t, func(t *testing.T, e *engine) {
		f := newFleet(t, e.require(t).URL())
		var consumers, producers []*program
		for range 2 {
			consumers = append(consumers, f.consumer(settings{"TASK_MS": 5, "RESULTS": 1}))
			producers = append(producers, f.producer(settings{"COUNT": 150, "RATE": 400, "CONCURRENCY": 16, "RESULTS": 1}))
		}
		for _, p := range producers {
			if code := p.exit(patience); code != 0 {
				t.Errorf("%s ended with status %d", p.name, code)
			}
		}
		f.drain(consumers...)
		f.check(ledger.NoLoss, ledger.NoRepeat, ledger.NoGhosts, ledger.Results)
		if n := len(f.history().Tasks(ledger.Confirmed)); n != 300 {
			t.Errorf("%d tasks were confirmed of 300", n)
		}
		f.awaitEmpty(f.connect(f.url).Broker)
	})
}

func TestProcessesWaitForABrokerThatIsAway(t *testing.T) {
	eachLong(t, func(t *testing.T, e *engine) {
		node := e.require(t)
		proxy := testserver.NewProxy(t, node.Addr())
		proxy.Cut()
		f := newFleet(t, proxy.URL(node.URL()))
		c := f.consumer(nil)
		p := f.producer(settings{"COUNT": 20})
		f.awaitLog(c, "the broker cannot be reached; subscribing is repeated")
		f.awaitLog(p, "waiting for the broker")
		proxy.Heal()
		if code := p.exit(patience); code != 0 {
			t.Errorf("the producer ended with status %d", code)
		}
		f.await("all tasks finished", atLeast(20, ledger.Finished))
		c.terminate()
		f.check(ledger.NoLoss, ledger.NoRepeat, ledger.NoGhosts)
	})
}
