package producer_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A queue that is declared with levels runs urgent tasks, with a lower number, first. Both sides
// use the same levels. A queue without levels refuses priorities.
func ExampleConfig_priority() {
	levels := []int{10, 100, 1000} // up to 10 urgent, up to 100 normal, above that low
	build := task.New[string, string]("build")

	s := tasktest.New(nil)
	defer s.Close()
	p := s.Producer(producer.Config{Queues: []broker.Queue{{Name: "default", Levels: levels}}})
	order := make(chan string, 3)

	ctx := context.Background()
	for what, priority := range map[string]int{"documentation": 500, "release": 100, "hotfix": 1} {
		_, err := build.Submit(ctx, p, what, task.WithPriority(priority))
		if err != nil {
			panic(err)
		}
	}

	s.Start(consumer.Config{Queues: map[string]consumer.QueueConfig{"default": {Workers: 1, Prefetch: 1, Levels: levels}}}, func(r task.Registrar) error {
		return build.Handle(r, func(_ context.Context, what string) (string, error) {
			order <- what
			return what, nil
		})
	}) // all three wait already
	fmt.Println(<-order, <-order, <-order)
	// Output: hotfix release documentation
}
