package producer_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// A queue that is declared with levels runs urgent tasks first: the lower number. Both sides name the same levels. On a
// queue without levels a priority is refused, not ignored.
func ExampleConfig_priority() {
	levels := []int{10, 100, 1000} // up to 10 urgent, up to 100 ordinary, above that when there is nothing else to do
	build := task.New[string, string]("build")

	p, c, run := inMemory(
		producer.Config{Queues: []broker.Queue{{Name: "default", Levels: levels}}},
		consumer.Config{Queues: map[string]consumer.QueueConfig{"default": {Workers: 1, Prefetch: 1, Levels: levels}}},
	)
	order := make(chan string, 3)
	must(build.Handle(c, func(_ context.Context, what string) (string, error) {
		order <- what
		return what, nil
	}))

	ctx, cancel := soon()
	defer cancel()
	for what, priority := range map[string]int{"documentation": 500, "release": 100, "hotfix": 1} {
		_, err := build.Submit(ctx, p, what, task.WithPriority(priority))
		must(err)
	}
	defer run()() // all three wait already
	fmt.Println(<-order, <-order, <-order)
	// Output: hotfix release documentation
}
