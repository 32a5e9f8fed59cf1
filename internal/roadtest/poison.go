package roadtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/serializer/msgpack"
	"github.com/swarmiji/swarmiji/task"
)

// testPoisonCopies: a task that was handed out too often is given up only from the side queue, of which it was held alone;
// its neighbours, handed out as often, all succeed.
func testPoisonCopies(t *testing.T, open Open) {
	m := middleware.NewMetrics(nil)
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) { c.Metrics = m })
	handle(r, work, func(_ context.Context, i int) (int, error) { return i, nil })
	const n = 20
	const side = queueName + ".suspects"
	if err := broker.Declare(r.ctx(), r.broker, broker.Queue{Name: queueName}, broker.Queue{Name: side}); err != nil {
		t.Fatal(err)
	}
	var innocent []string
	for i := range n {
		innocent = append(innocent, fmt.Sprintf("held-%d", i))
		r.publishHeld(queueName, innocent[i], i)
	}
	r.publishHeld(side, "poison", n)
	r.handOutOnce(queueName, n)
	r.handOutOnce(side, 1)
	var futures []*task.Future[int]
	for _, id := range innocent {
		f := task.FutureOf[int](r.producer.Pending(task.ID(id)))
		f.Done() // from now on its result is waited for
		futures = append(futures, f)
	}
	r.start()
	for i, f := range futures {
		want(r, f, i)
	}
	if got := r.wantDead("poison", "alone"); got.Message.ID != "poison" {
		t.Fatal("the wrong task was given up")
	}
	if m.Crashes.Count() != n+1 || m.Buried.Count() != 1 {
		t.Fatalf("%d crashes counted, %d tasks given up; want %d and 1", m.Crashes.Count(), m.Buried.Count(), n+1)
	}
}

// publishHeld publishes a task as if two processes had died while they held it.
func (r *road) publishHeld(queue, id string, arg int) {
	r.t.Helper()
	msg, err := msgpack.Compact{}.Encode(&task.Envelope{
		ID: task.ID(id), Name: "work", Args: []byte{byte(arg)}, ContentType: msgpack.Serializer{}.ContentType(),
		Crashes: 2, ReplyTo: r.producer.NodeID(),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.broker.Publish(r.ctx(), queue, msg); err != nil {
		r.t.Fatal(err)
	}
}

// handOutOnce takes n messages and gives them back, so that the broker says of each that it is not the first time.
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
