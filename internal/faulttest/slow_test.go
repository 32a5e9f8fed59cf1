package faulttest

import (
	"syscall"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/ledger"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// A consumer that is frozen for longer than the heartbeats allow is treated as dead. When it
// continues, its late work has no visible effect: every task has one result.
func TestFrozenConsumerIsReplaced(t *testing.T) {
	eachLong(t, func(t *testing.T, e *engine) {
		node := e.require(t)
		f := newFleet(t, node.URL()+e.alert)
		p := f.producer(settings{"RATE": 50, "RESULTS": 1})
		f.consumer(e.quick(settings{"TASK_MS": 20, "CONCURRENCY": 2, "RESULTS": 1}))
		frozen := f.consumer(e.quick(settings{"TASK_MS": 300, "CONCURRENCY": 4, "RESULTS": 1}))
		f.await("load", atLeast(100, ledger.Finished))
		for stopped := false; !stopped; {
			f.await("the consumer that will be frozen runs a task", running(frozen))
			frozen.signal(syscall.SIGSTOP)
			if stopped = running(frozen)(f.history()); !stopped { // the task has ended meanwhile
				frozen.signal(syscall.SIGCONT)
			}
		}
		stuck := f.history().Open()
		f.await("others ran what the frozen consumer had", func(h ledger.History) bool {
			for _, task := range stuck {
				if h[task.ID].Count(ledger.Finished) == 0 {
					return false
				}
			}
			return len(h.Repeated(ledger.Started)) > 0
		})
		frozen.signal(syscall.SIGCONT)
		thawed := time.Now()
		f.await("load again", atLeast(len(f.history().Tasks(ledger.Finished))+100, ledger.Finished))
		p.terminate()
		f.await("all confirmed tasks finished", nothingLost)
		f.drain(frozen)
		f.check(ledger.NoLoss, ledger.NoGhosts, ledger.RepeatsOnlyOf(submittedBefore(f.history(), thawed.Add(recovery))), oneResult)
		f.awaitEmpty(f.connect(f.url).Broker)
	})
}

// oneResult is a rule: no future resolved twice.
func oneResult(h ledger.History) []ledger.Violation {
	var bad []ledger.Violation
	for _, task := range h.Repeated(ledger.Result) {
		bad = append(bad, ledger.Violation{Rule: "a task has two results", Task: task})
	}
	return bad
}

// A slow link is not a fault: no lease is lost, and no task runs twice.
func TestSlowLinkRepeatsNothing(t *testing.T) {
	eachLong(t, func(t *testing.T, e *engine) {
		node := e.require(t)
		proxy := testserver.NewProxy(t, node.Addr())
		f := newFleet(t, proxy.URL(node.URL()))
		c := f.consumer(settings{"TASK_MS": 5, "CONCURRENCY": 8})
		p := f.producer(settings{"RATE": 30, "CONCURRENCY": 32})
		f.await("load", atLeast(20, ledger.Finished))
		proxy.Latency(400*time.Millisecond, 300*time.Millisecond)
		f.await("load over a slow link", atLeast(len(f.history().Tasks(ledger.Finished))+75, ledger.Finished))
		proxy.Heal()
		proxy.Bandwidth(20)
		f.await("load over a narrow link", atLeast(len(f.history().Tasks(ledger.Finished))+50, ledger.Finished))
		proxy.Heal()
		p.terminate()
		f.await("all confirmed tasks finished", nothingLost)
		f.drain(c)
		f.check(ledger.NoLoss, ledger.NoGhosts, ledger.NoRepeat)
		f.awaitEmpty(f.connect(node.URL()).Broker)
	})
}

// window limits how long the test keeps up each kind of failing link: the time of a few
// connections.
const window = 1500 * time.Millisecond

// A link that fails in the middle of a frame leaves an incomplete message. No receiver takes it for
// a complete one.
func TestLinkDiesInMidFrame(t *testing.T) {
	eachLong(t, func(t *testing.T, e *engine) {
		node := e.require(t)
		proxy := testserver.NewProxy(t, node.Addr())
		f := newFleet(t, proxy.URL(node.URL()))
		c := f.consumer(e.quick(settings{"TASK_MS": 5, "CONCURRENCY": 8}))
		p := f.producer(settings{"RATE": 80, "CONCURRENCY": 16})
		f.await("load", atLeast(50, ledger.Finished))
		for i, n := range []int64{1_001, 5_003, 20_011} { // odd numbers, at which no frame ends
			up := i%2 == 0
			for range often(1, 2) {
				proxy.Truncate(up, !up, n)
				until := time.Now().Add(window)
				f.await("links died for a while", func(ledger.History) bool { return time.Now().After(until) })
				proxy.Heal()
				healed := time.Now()
				f.awaitWithin(recovery, "a task started after the link was mended", startedAfter(healed))
				up = !up
			}
		}
		p.terminate()
		f.await("all confirmed tasks finished", nothingLost)
		f.drain(c)
		f.check(ledger.NoLoss, ledger.NoGhosts)
		f.awaitEmpty(f.connect(node.URL()).Broker)
	})
}
