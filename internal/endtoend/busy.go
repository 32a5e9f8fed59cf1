package endtoend

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// testBusyHoldsNothing: a consumer whose only worker runs a long task keeps no task of other levels
// or fairness keys. A second consumer runs them, although they came before it started. After the
// long task the first consumer runs tasks again.
func testBusyHoldsNothing(t *testing.T, open Open) {
	for name, q := range map[string]broker.Queue{
		"keys":   {Name: queueName, Fair: true},
		"levels": {Name: queueName, Levels: []int{10, 100}},
	} {
		t.Run(name, func(t *testing.T) { testBusyQueue(t, open, q) })
	}
}

// testBusyQueue is testBusyHoldsNothing with the queue q.
func testBusyQueue(t *testing.T, open Open, q broker.Queue) {
	const long, light = 0, 5
	r := newRoad(t, open, func(p *producer.Config, c *consumer.Config) {
		p.Queues = []broker.Queue{q}
		c.Queues[queueName] = consumer.QueueConfig{Workers: 1, Levels: q.Levels, Fair: q.Fair}
	})
	if err := broker.Declare(r.ctx(), r.broker, q); errors.Is(err, broker.ErrUnsupported) {
		t.Skip("this broker has no such queues")
	} else if err != nil {
		t.Fatal(err)
	}
	resizes, divided := offersOf(r)
	if !resizes {
		t.Skip("this broker cannot change the prefetch of a subscription")
	}
	release, started := make(chan struct{}), make(chan struct{})
	let := sync.OnceFunc(func() { close(release) })
	t.Cleanup(let)
	register := func(c *consumer.Consumer) {
		if err := work.Handle(c, func(_ context.Context, i int) (int, error) {
			if i == long {
				close(started)
				<-release
			}
			return i, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	register(r.consumer)
	r.start()
	heavy := submit(r, work, long, task.WithFairnessKey("heavy"))
	<-started
	lightly := []task.Option{task.WithFairnessKey("light")}
	if len(q.Levels) > 0 {
		lightly = append(lightly, task.WithPriority(5))
	}
	r.eventually("the consumer holds no more than its worker runs", func() bool { return r.consumer.Stats().Queues[0].Prefetch <= 1 })
	var fs []*task.Future[int]
	for i := range light {
		fs = append(fs, submit(r, work, i+1, lightly...))
	}
	if divided {
		r.eventually("the busy consumer holds a light task, or fetches none", func() bool {
			queue := r.consumer.Stats().Queues[0]
			return queue.Reserved > 0 || queue.Prefetch == 0
		})
	}
	other := r.second(register)
	for i, f := range fs {
		want(r, f, i+1)
	}
	if err := other.stop(); err != nil {
		t.Fatal(err)
	}
	last := submit(r, work, light+1, lightly...)
	let()
	want(r, heavy, long)
	want(r, last, light+1)
}
