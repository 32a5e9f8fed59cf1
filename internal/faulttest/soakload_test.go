package faulttest

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/ledger"
	"github.com/swarmiji/swarmiji/task"
)

const (
	atLeastOnce = "atleast"
	atMostOnce  = "atmost"
)

const (
	soakConsumers = 3
	soakWorkers   = 4  // of each consumer
	soakRate      = 60 // tasks per second of each load
	// insistence is the StoreRetry of the consumers. It is shorter than some alarms.
	insistence = 3 * time.Second
)

// load is a queue with a producer and consumers. A consumer that a fault ends is replaced.
type load struct {
	run       *soakRun
	mode      string
	fleet     *fleet
	consumers []*program
	producer  *program
	died      map[string]time.Time // when each killed consumer was killed
	kills     []ledger.Fault
}

func (l *load) consumer() *program {
	s := settings{
		"MODE": l.mode, "TASK_MS": 20, "CONCURRENCY": soakWorkers, "SEED": l.run.chance.Uint32(),
		"STORE_RETRY_MS": insistence.Milliseconds(),
	}
	if l.run.place.lease > 0 {
		s["LEASE_MS"] = l.run.place.lease.Milliseconds()
	}
	return l.fleet.consumer(s)
}

func (l *load) producerSettings() settings {
	return settings{
		"MODE": l.mode, "ID": "producer", "RATE": soakRate, "CONCURRENCY": 32, "RESUME": 1, "SEED": l.run.chance.Uint32(),
	}
}

// kill kills consumer i, records the kill and starts another consumer.
func (l *load) kill(i int) {
	victim := l.consumers[i]
	from := time.Now() // another consumer may start the victim's tasks before kill returns
	victim.kill()
	now := time.Now()
	l.died[victim.name] = now
	l.kills = append(l.kills, ledger.Fault{Name: "consumer killed", By: victim.name, From: from, To: now})
	l.consumers[i] = l.consumer()
}

// stop stops consumer i in good order, once it has started a task, and starts another consumer.
func (l *load) stop(i int) {
	l.awaitWorking(l.consumers[i])
	l.consumers[i].terminate()
	l.consumers[i] = l.consumer()
}

// awaitWorking waits until a consumer has started a task. A signal before that may arrive before
// the consumer handles signals.
func (l *load) awaitWorking(c *program) {
	l.run.t.Helper()
	l.fleet.await(l.mode+": "+c.name+" works", func(h ledger.History) bool {
		for _, task := range h {
			for _, line := range task.Lines {
				if line.Event == ledger.Started && line.By == c.name {
					return true
				}
			}
		}
		return false
	})
}

// progress waits until another soakRate tasks have finished.
func (l *load) progress(after string) {
	l.run.t.Helper()
	have := len(l.fleet.history().Tasks(ledger.Finished))
	l.fleet.await(l.mode+": progress after "+after, atLeast(have+soakRate, ledger.Finished))
}

// finish ends the load and checks its ledger against the promised rules.
func (l *load) finish() {
	t, f := l.run.t, l.fleet
	for _, c := range l.consumers {
		l.awaitWorking(c)
	}
	l.producer.terminate()
	b := f.connect(l.run.direct()).Broker
	if l.mode == atLeastOnce {
		f.await("all confirmed tasks finished", nothingLost)
	} else { // RabbitMQ does not count fetched messages, so that drain may take the queue for empty
		f.await("a consumer took each confirmed task", allTaken)
	}
	l.drain(b)
	letters := l.readDead(b)
	h := f.history()
	faults := append(slices.Clone(l.kills), l.run.hits...)
	causes, unexplained := h.Repeats(faults)
	t.Logf("%s: %s", l.mode, summary(h))
	if l.mode == atLeastOnce {
		t.Logf("RESULT %s %s: %d confirmed, %d lost, repeats %v, %d unexplained, %d dead letters", l.run.place.name, l.mode,
			len(h.Tasks(ledger.Confirmed)), len(h.Check(ledger.NoLoss)), causes, len(unexplained), letters)
		f.check(ledger.NoLoss, ledger.NoGhosts, ledger.RepeatsExplained(faults))
		if letters > 0 {
			t.Errorf("%d dead letters of tasks that never ended a process", letters)
		}
		return
	}
	ends, lost := h.Ends(l.died)
	t.Logf("RESULT %s %s: %d confirmed, %d finished, %d uncertain, %d died in the middle, %d lost, %d started twice, %d dead letters of %d tasks",
		l.run.place.name, l.mode, len(h.Tasks(ledger.Confirmed)), ends.Finished, ends.Uncertain, ends.Died, len(lost),
		len(h.Repeated(ledger.Started)), letters, len(h.Tasks(ledger.Dead)))
	f.check(ledger.EndsForSure(l.died), ledger.NoRepeat, ledger.NoGhosts, ledger.OnlyTakenAreDead)
	if most := len(l.kills) * soakWorkers; ends.Died > most {
		t.Errorf("%d tasks died with their consumer; %d kills explain %d", ends.Died, len(l.kills), most)
	}
}

// drain ends the consumers when the queue is empty. If the broker does not count held messages, a
// stopping consumer may give some back, so drain starts another consumer for them.
func (l *load) drain(b broker.Broker) {
	empty := func(s broker.Stats) bool { return s.Ready == 0 && s.Held <= 0 }
	for {
		l.fleet.awaitStats(b, l.mode+": nothing left to do", empty)
		for _, c := range l.consumers {
			c.terminate()
		}
		inspector, _ := capability.As[broker.Inspector](b)
		s, err := inspector.Stats(l.run.t.Context(), l.fleet.queue)
		l.run.must(err)
		if empty(s) {
			return
		}
		l.consumers = []*program{l.consumer()}
	}
}

// readDead records the dead letters in the ledger and returns their number. The dead letters of
// tasks that run at most once must say that their outcome is unknown.
func (l *load) readDead(b broker.Broker) int {
	t := l.run.t
	letters, err := broker.ListDead(t.Context(), b, l.fleet.queue, math.MaxInt32)
	if err != nil && !errors.Is(err, broker.ErrNoQueue) {
		t.Fatal(err)
	}
	book, err := ledger.Create(l.fleet.ledger, "test")
	l.run.must(err)
	defer book.Close()
	reasons := make(map[string]int)
	for _, d := range letters {
		l.run.must(book.Write(ledger.Dead, d.Message.ID))
		reasons[d.Reason]++
		if l.mode == atMostOnce && !strings.Contains(d.Reason, task.ErrUncertain.Error()) {
			t.Errorf("dead letter %s: %s", d.Message.ID, d.Reason)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		t.Logf("%s: %d dead letters: %s", l.mode, reasons[reason], reason)
	}
	return len(letters)
}
