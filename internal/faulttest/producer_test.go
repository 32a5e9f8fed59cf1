package faulttest

import (
	"testing"

	"github.com/swarmiji/swarmiji/internal/ledger"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// A proxy swallows the confirmations of a producer, so its tasks run without its knowledge. Then
// the producer is killed, and the next producer submits the same ids again.
func TestProducerKilledBeforeTheConfirm(t *testing.T) {
	eachLong(t, func(t *testing.T, e *engine) {
		node := e.require(t)
		proxy := testserver.NewProxy(t, node.Addr())
		f := newFleet(t, node.URL())
		c := f.consumer(settings{"RESULTS": 1})
		f.url = proxy.URL(node.URL())
		victim := f.producer(settings{"ID": "same", "RATE": 200, "CONCURRENCY": 8, "RESULTS": 1})
		unknown := func(h ledger.History) (ran []*ledger.Task) {
			for _, task := range h.Lacking(ledger.Submitted, ledger.Confirmed) {
				if task.Count(ledger.Started) > 0 {
					ran = append(ran, task)
				}
			}
			return ran
		}
		ran := false
		for try := 1; !ran; try++ { // no call may be on its way when the answers stop
			if try > 20 {
				t.Fatal("no task runs without the producer knowing")
			}
			proxy.Heal()
			confirmed := len(f.history().Tasks(ledger.Confirmed))
			f.await("some tasks confirmed", atLeast(confirmed+40, ledger.Confirmed))
			proxy.BlackHole(false, true)
			looks := 0
			f.await("tasks that run without the producer knowing", func(h ledger.History) bool {
				looks++
				ran = len(unknown(h)) > 0
				return ran || looks > 25
			})
		}
		victim.kill()
		h := f.history()
		open := h.Lacking(ledger.Submitted, ledger.Confirmed)

		f.url = node.URL()
		successor := f.producer(settings{"ID": "same", "RESUME": 1, "COUNT": 5, "RESULTS": 1})
		if code := successor.exit(patience); code != 0 {
			t.Errorf("the second producer ended with status %d", code)
		}
		f.await("all confirmed tasks finished", nothingLost)
		c.terminate()
		f.check(ledger.NoLoss, ledger.NoGhosts)
		h = f.history()
		for _, task := range open {
			now := h[task.ID]
			if now.Count(ledger.Confirmed) != 1 || now.Count(ledger.Result) != 1 || now.Count(ledger.Started) > 2 {
				t.Errorf("%v: an id that is submitted again is confirmed once, has one result, and runs twice at most", now)
			}
		}
	})
}
