package faulttest

import (
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/ledger"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// ackTime limits how long before its death a process may have finished a task whose acknowledgement
// was lost with it.
const ackTime = 500 * time.Millisecond

// Promises: S24.
func TestKilledConsumerLosesNothing(t *testing.T) {
	each(t, func(t *testing.T, e *engine) {
		f := newFleet(t, e.require(t).URL())
		victim := f.consumer(e.quick(settings{"TASK_MS": 200, "CONCURRENCY": 4, "PREFETCH": 16}))
		p := f.producer(settings{"COUNT": 60})
		f.await("the first consumer in mid-task", func(h ledger.History) bool {
			return len(h.Tasks(ledger.Finished)) >= 6 && len(h.Open()) >= 3
		})
		died := time.Now() // at the earliest
		victim.kill()
		left := held(f.history(), died.Add(-ackTime))
		f.consumer(e.quick(settings{"TASK_MS": 10}))
		if code := p.exit(patience); code != 0 {
			t.Errorf("the producer ended with status %d", code)
		}
		h := f.await("all confirmed tasks finished", nothingLost)
		f.check(ledger.NoLoss, ledger.NoGhosts, ledger.RepeatsOnlyOf(left))
		if len(h.Repeated(ledger.Started)) == 0 {
			t.Error("no task was in the middle of its run when the consumer was killed: the test shows nothing")
		}
		f.awaitEmpty(f.connect(f.url).Broker)
	})
}

func TestTerminatedConsumersRepeatNothing(t *testing.T) {
	each(t, func(t *testing.T, e *engine) {
		f := newFleet(t, e.require(t).URL())
		p := f.producer(settings{"RATE": 200, "CONCURRENCY": 16, "RESULTS": 1})
		set := settings{"TASK_MS": 20, "RESULTS": 1}
		old := f.consumer(set)
		for round := 1; round <= often(2, 4); round++ {
			f.await("progress under load", atLeast(100*round, ledger.Finished))
			next := f.consumer(set)
			old.terminate()
			old = next
		}
		p.terminate()
		f.await("all confirmed tasks finished", nothingLost)
		f.drain(old)
		f.check(ledger.NoLoss, ledger.NoRepeat, ledger.NoGhosts, ledger.Results)
		f.awaitEmpty(f.connect(f.url).Broker)
	})
}

func TestTerminatedConsumerGivesBackAtOnce(t *testing.T) {
	each(t, func(t *testing.T, e *engine) {
		f := newFleet(t, e.require(t).URL())
		b := f.connect(f.url).Broker
		// A Redis consumer fetches again only when it has room for several tasks. The large prefetch
		// leaves enough room for it to hold all tasks.
		hoarder := f.consumer(settings{"TASK_MS": 8000, "CONCURRENCY": 1, "PREFETCH": 200})
		p := f.producer(settings{"COUNT": 100})
		if code := p.exit(patience); code != 0 {
			t.Fatalf("the producer ended with status %d", code)
		}
		f.await("one task running", atLeast(1, ledger.Started))
		f.awaitStats(b, "all others held by the same consumer", func(s broker.Stats) bool { return s.Ready == 0 })
		f.consumer(settings{"PREFETCH": 100})
		stopped := time.Now()
		hoarder.terminate()
		ended := time.Now()
		h := f.await("all tasks finished", atLeast(100, ledger.Finished))
		if first := firstStart(h, stopped); !first.Before(ended) {
			t.Errorf("the first task that was given back started %v after SIGTERM, when the stopped consumer had ended its last", first.Sub(stopped))
		}
		f.check(ledger.NoLoss, ledger.NoRepeat, ledger.NoGhosts)
		f.awaitEmpty(b)
	})
}

func TestSecondSignalStopsAtOnce(t *testing.T) {
	eachLong(t, func(t *testing.T, e *engine) {
		f := newFleet(t, e.require(t).URL())
		busy := f.consumer(e.quick(settings{"TASK_MS": 120_000, "CONCURRENCY": 2, "PREFETCH": 2}))
		f.producer(settings{"COUNT": 6})
		f.await("two tasks running, six confirmed", func(h ledger.History) bool {
			return len(h.Tasks(ledger.Started)) == 2 && len(h.Tasks(ledger.Confirmed)) == 6
		})
		busy.signal(syscall.SIGTERM)
		// Another consumer gets the tasks that were not started. That shows that the first signal arrived
		// and did not end the running tasks.
		f.consumer(e.quick(settings{}))
		f.await("the four others finished", atLeast(4, ledger.Finished))
		if busy.ended() {
			t.Fatal("the consumer ended at the first signal, with tasks running and half a minute left for them")
		}
		left := held(f.history(), time.Now())
		busy.signal(syscall.SIGTERM)
		if code := busy.exit(10 * time.Second); code == 0 {
			t.Error("a consumer that gave running tasks back must not end with status 0")
		}
		f.await("all tasks finished", atLeast(6, ledger.Finished))
		f.check(ledger.NoLoss, ledger.NoGhosts, ledger.RepeatsOnlyOf(left))
	})
}

func TestTaskLongerThanTheGraceRunsElsewhere(t *testing.T) {
	eachLong(t, func(t *testing.T, e *engine) {
		f := newFleet(t, e.require(t).URL())
		slow := f.consumer(e.quick(settings{"TASK_MS": 120_000, "CONCURRENCY": 1, "GRACE_MS": 500}))
		f.producer(settings{"COUNT": 1})
		f.await("the task running", atLeast(1, ledger.Started))
		slow.signal(syscall.SIGTERM)
		if code := slow.exit(10 * time.Second); code == 0 {
			t.Error("a consumer that gave a running task back must not end with status 0")
		}
		f.consumer(e.quick(settings{}))
		h := f.await("the task finished by another consumer", atLeast(1, ledger.Finished))
		if n := h.Tasks(ledger.Started)[0].Count(ledger.Started); n != 2 {
			t.Errorf("the task was started %d times; once by each consumer is 2", n)
		}
		f.awaitEmpty(f.connect(f.url).Broker)
	})
}

// Promises: S24.
func TestAtMostOnceNeverStartsTwice(t *testing.T) {
	each(t, func(t *testing.T, e *engine) {
		node := e.require(t)
		f := newFleet(t, node.URL())
		proxy := testserver.NewProxy(t, node.Addr())
		p := f.producer(settings{"RATE": 150, "MODE": "atmost"})
		f.url = proxy.URL(node.URL())
		const workers = 4
		rounds := often(2, 3)
		set := e.quick(settings{"MODE": "atmost", "TASK_MS": 20, "CONCURRENCY": workers, "PREFETCH": 32})
		var c *program
		for round := range rounds {
			if c != nil {
				c.kill()
			}
			c = f.consumer(set)
			seen := len(f.history().Tasks(ledger.Finished))
			f.await("progress", atLeast(seen+60, ledger.Finished))
			if round == 1 { // a killed broker forgets acknowledgements that it had received
				node.Kill()
				if err := node.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
			} else {
				proxy.Sever()
			}
			f.await("progress after round "+strconv.Itoa(round)+" of cutting the connection", atLeast(seen+120, ledger.Finished))
		}
		p.terminate()
		c.terminate()
		f.check(ledger.NoRepeat, ledger.NoGhosts)
		// A cut leaves each worker one task whose acknowledgement is uncertain. A kill leaves each worker
		// one task that runs or is about to run. A task that was only held when its consumer or the
		// broker died may have run, so it is a dead letter.
		unfinished := len(f.history().Check(ledger.NoLoss))
		f.awaitStats(f.connect(node.URL()).Broker, "no more tasks lost than the workers had in hand", func(s broker.Stats) bool {
			return unfinished-s.Ready-s.Dead-max(0, s.Held) <= 2*rounds*workers
		})
	})
}
