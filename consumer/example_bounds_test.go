package consumer_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// At most two tasks of a customer run at once, over all consumers. The workers are free for other
// customers meanwhile.
func ExampleQueueConfig_bounds() {
	ctx := context.Background()
	export := task.New[int, string]("export")
	s := tasktest.New(nil)
	defer s.Close()
	p := s.Producer(producer.Config{Queues: []broker.Queue{{Name: "default", Fair: true}}})

	var running, most atomic.Int64
	started, finish := make(chan struct{}, 6), make(chan struct{})
	s.Start(consumer.Config{Queues: map[string]consumer.QueueConfig{"default": {
		Workers: 8, Fair: true, Bounds: broker.Bounds{Key: broker.Bound{Max: 2}},
	}}}, func(r task.Registrar) error {
		return export.Handle(r, func(context.Context, int) (string, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			started <- struct{}{}
			<-finish
			return "done", nil
		})
	})
	var futures []*task.Future[string]
	for i := range 6 {
		future, err := export.Submit(ctx, p, i, task.WithFairnessKey("customer 7"))
		if err != nil {
			panic(err)
		}
		futures = append(futures, future)
	}
	<-started
	<-started
	fmt.Println("running:", running.Load())
	close(finish)
	for _, future := range futures {
		if _, err := future.Get(ctx); err != nil {
			panic(err)
		}
	}
	fmt.Println("at most:", most.Load())
	// Output:
	// running: 2
	// at most: 2
}

// Each fourth task comes from a less urgent level while urgent ones wait.
func ExampleQueueConfig_floor() {
	ctx := context.Background()
	mail := task.New[string, string]("mail")
	s := tasktest.New(nil)
	defer s.Close()
	p := s.Producer(producer.Config{Queues: []broker.Queue{{Name: "default", Levels: []int{10, 100}}}})
	order := make(chan string, 8)
	for i := 1; i <= 6; i++ {
		if _, err := mail.Submit(ctx, p, fmt.Sprint("password ", i), task.WithPriority(5)); err != nil {
			panic(err)
		}
	}
	for i := 1; i <= 2; i++ {
		if _, err := mail.Submit(ctx, p, fmt.Sprint("newsletter ", i), task.WithPriority(50)); err != nil {
			panic(err)
		}
	}
	s.Start(consumer.Config{Queues: map[string]consumer.QueueConfig{"default": {
		Workers: 1, Prefetch: 1, Levels: []int{10, 100}, Floor: 0.25,
	}}}, func(r task.Registrar) error {
		return mail.Handle(r, func(_ context.Context, text string) (string, error) {
			order <- text
			return text, nil
		})
	})
	for range 8 {
		fmt.Println(<-order)
	}
	// Output:
	// password 1
	// password 2
	// password 3
	// newsletter 1
	// password 4
	// password 5
	// password 6
	// newsletter 2
}
