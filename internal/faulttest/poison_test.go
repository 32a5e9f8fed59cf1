package faulttest

import (
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/ledger"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// A task that kills its process takes down all tasks that the process holds, again and again, until
// it is dead-lettered. The tasks held beside it must not be taken for the poison.
func TestPoisonTaskIsBuriedAndItsNeighboursSucceed(t *testing.T) {
	eachLong(t, func(t *testing.T, e *engine) {
		f := newFleet(t, e.require(t).URL())
		b := f.connect(f.url).Broker
		p, err := producer.New(producer.Config{Broker: b, Router: router.Static(f.queue), Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		book, err := ledger.Create(f.ledger, "test")
		if err != nil {
			t.Fatal(err)
		}
		defer book.Close()
		submit := func(name, id string) {
			t.Helper()
			define := task.New[struct{}, struct{}](name, task.WithIgnoreResult(true))
			note(t, book, ledger.Submitted, id)
			if _, err := define.Submit(t.Context(), p, struct{}{}, task.WithID(task.ID(id))); err != nil {
				t.Fatal(err)
			}
			note(t, book, ledger.Confirmed, id)
		}
		const poison = "poison"
		const neighbours = 40
		for i := range neighbours {
			if i == neighbours/4 {
				submit("soak.exit", poison)
			}
			submit("soak.work", "neighbour-"+string(rune('A'+i)))
		}
		crashes := 0
		// Deaths are judged soon, so that the second and the third start do not wait for half a minute
		// each.
		victim := func() *program {
			return f.consumer(e.quick(settings{"TASK_MS": 50, "CONCURRENCY": 2, "PREFETCH": 32, "ABSENT_MS": 2000}))
		}
		c := victim()
		f.awaitWithin(2*patience, "the neighbours finished, the poison dead-lettered", func(h ledger.History) bool {
			if c.ended() {
				if code := c.status(); code != 137 {
					t.Fatalf("%s ended with status %d", c.name, code)
				}
				crashes++
				c = victim()
			}
			return len(h.Tasks(ledger.Finished)) == neighbours && dead(t, b, f.queue) == 1
		})
		h := f.history()
		starts := h[poison].Count(ledger.Started)
		if starts != crashes || starts < 3 || starts > 4 {
			t.Errorf("the poison task was started %d times and %d consumers died; both must be the limit of 3, or one more where the last start was not alone", starts, crashes)
		}
		letters, err := broker.ListDead(t.Context(), b, f.queue, 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(letters) != 1 || letters[0].Message.ID != poison || !strings.Contains(letters[0].Reason, task.ErrPoison.Error()) {
			t.Errorf("dead letters %+v; wanted the poison task alone, with what it did as the reason", letters)
		}
		f.awaitStats(b, "an empty queue with one dead letter", func(s broker.Stats) bool { return s.Ready == 0 && s.Dead == 1 })
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func note(t *testing.T, w *ledger.Writer, e ledger.Event, id string) {
	t.Helper()
	if err := w.Write(e, id); err != nil {
		t.Fatal(err)
	}
}

func dead(t *testing.T, b broker.Broker, queue string) int {
	t.Helper()
	inspector, ok := capability.As[broker.Inspector](b)
	if !ok {
		t.Fatal("the broker cannot tell the length of a queue")
	}
	s, err := inspector.Stats(t.Context(), queue)
	if err != nil {
		return 0 // the queue is not declared yet
	}
	return s.Dead
}
