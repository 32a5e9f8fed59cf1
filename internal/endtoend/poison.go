package endtoend

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/serializer/msgpack"
	"github.com/swarmiji/swarmiji/task"
)

// shortAbsence is the time after which a node counts as absent in these tests.
const shortAbsence = 300 * time.Millisecond

// testPoison: a task whose starts ended two processes, the second time alone in it, becomes a dead
// letter. Tasks that ran beside it when the first process died run again, each alone in the
// process, and succeed. Tasks that were only held start at once.
func testPoison(t *testing.T, open Open) {
	m := new(middleware.Metrics)
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) { c.Metrics, c.Tuning.AbsentAfter = m, shortAbsence })
	w, ok := capability.As[broker.Witness](r.broker)
	if !ok {
		t.Skip("this broker keeps no notes of starts")
	}
	handle(r, work, func(_ context.Context, i int) (int, error) { return i, nil })
	const held, beside = 10, 3
	if err := broker.Declare(r.ctx(), r.broker, broker.Queue{Name: queueName}); err != nil {
		t.Fatal(err)
	}
	for i := range held + beside {
		r.publishWork(fmt.Sprint(i), i)
	}
	r.publishWork("poison", held+beside)
	r.handOutOnce(queueName, held+beside+1)

	ghost := r.h.Broker(t) // connection of a process that has died
	died, _ := capability.As[broker.Witness](ghost)
	note := func(id, nonce, node string, alone bool) broker.Start {
		s := broker.Start{ID: id, Nonce: nonce, Node: node, Alone: alone, At: time.Now()}
		if _, err := died.NoteStart(r.ctx(), queueName, s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for i := range beside {
		note(fmt.Sprint(held+i), "beside", "ghost-1", false)
	}
	first := note("poison", "first", "ghost-1", false)
	first.Verdict = broker.StartDied
	if err := w.JudgeStart(r.ctx(), queueName, first); err != nil {
		t.Fatal(err)
	}
	note("poison", "second", "ghost-2", true)
	if err := ghost.Close(r.ctx()); err != nil {
		t.Fatal(err)
	}

	var futures []*task.Future[int]
	for i := range held + beside {
		f := task.FutureOf[int](r.producer.Pending(task.ID(fmt.Sprint(i))))
		f.Done() // from now on a process waits for its result
		futures = append(futures, f)
	}
	r.start()
	for i, f := range futures {
		want(r, f, i)
	}
	if got := r.wantDead("poison", "in quarantine"); got.Message.ID != "poison" {
		t.Fatal("the wrong task was given up")
	}
	r.eventually("the dead letter counts", func() bool { return m.DeadLettered.Count() > 0 })
	if m.Crashes.Count() != beside+1 || m.DeadLettered.Count() != 1 {
		t.Fatalf("%d crashes counted, %d tasks given up; want %d and 1", m.Crashes.Count(), m.DeadLettered.Count(), beside+1)
	}
}

// publishWork publishes a task with an id as a producer would.
func (r *road) publishWork(id string, arg int) {
	r.t.Helper()
	msg, err := msgpack.Compact{}.Encode(&task.Envelope{
		ID: task.ID(id), Name: "work", Args: []byte{byte(arg)}, ContentType: msgpack.Serializer{}.ContentType(), ReplyTo: r.producer.NodeID(),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.broker.Publish(r.ctx(), queueName, msg); err != nil {
		r.t.Fatal(err)
	}
}

// handOutOnce receives n messages and returns them to the queue, so that the broker marks them as
// redelivered.
func (r *road) handOutOnce(queue string, n int) {
	r.t.Helper()
	sub, err := r.broker.Subscribe(r.ctx(), queue, broker.SubscribeOptions{Prefetch: n})
	if err != nil {
		r.t.Fatal(err)
	}
	var ds []broker.Delivery
	for range n {
		d, err := sub.Receive(r.ctx())
		if err != nil {
			r.t.Fatal(err)
		}
		ds = append(ds, d)
	}
	for _, d := range ds {
		if err := d.Release(r.ctx(), 0); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := sub.Close(r.ctx()); err != nil {
		r.t.Fatal(err)
	}
}

// testOldSideQueue: tasks that an older version moved to the side queue, with counted crashes, run.
func testOldSideQueue(t *testing.T, open Open) {
	r := newRoad(t, open)
	handle(r, work, func(_ context.Context, i int) (int, error) { return i, nil })
	if _, ok := capability.As[broker.Inspector](r.broker); !ok {
		t.Skip("this broker does not tell which queues there are")
	}
	const side = queueName + ".suspects"
	if err := broker.Declare(r.ctx(), r.broker, broker.Queue{Name: queueName}, broker.Queue{Name: side}); err != nil {
		t.Fatal(err)
	}
	old, err := msgpack.Compact{}.Encode(&task.Envelope{
		ID: "old", Name: "work", Args: []byte{7}, ContentType: msgpack.Serializer{}.ContentType(), Crashes: 2, ReplyTo: r.producer.NodeID(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.broker.Publish(r.ctx(), side, old); err != nil {
		t.Fatal(err)
	}
	f := task.FutureOf[int](r.producer.Pending("old"))
	f.Done() // from now on a process waits for its result
	r.start()
	want(r, f, 7)
	if s := r.consumer.Stats(); len(s.Queues) != 1 {
		t.Errorf("the side queue counts as a queue: %+v", s.Queues)
	}
}
