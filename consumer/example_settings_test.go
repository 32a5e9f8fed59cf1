package consumer_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/memsettings"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A stored pause holds for consumers that start later. The task waits in its queue until an
// operator resumes it.
func Example_storedPause() {
	ctx := context.Background()
	store := memsettings.New() // in production: the Settings of an open.Swarm
	defer store.Close(ctx)
	err := settings.PauseQueue(ctx, store, router.DefaultQueue, settings.Pause{Why: "the printer is broken"})
	if err != nil {
		panic(err)
	}

	printer := task.New[string, string]("print")
	s := tasktest.New(nil)
	defer s.Close()
	c := s.Start(consumer.Config{Settings: store}, func(r task.Registrar) error {
		return printer.Handle(r, func(_ context.Context, page string) (string, error) { return "printed " + page, nil })
	})
	future, err := printer.Submit(ctx, s, "page 1")
	if err != nil {
		panic(err)
	}
	fmt.Println("paused:", c.Stats().Queues[0].Paused)

	if _, err := settings.ResumeQueue(ctx, store, router.DefaultQueue); err != nil {
		panic(err)
	}
	fmt.Println(future.Get(ctx))
	// Output:
	// paused: true
	// printed page 1 <nil>
}

// A queue can be added and removed while the consumer runs.
func ExampleConsumer_AddQueue() {
	ctx := context.Background()
	greet := task.New[string, string]("greet")
	s := tasktest.New(nil)
	defer s.Close()
	c := s.Start(consumer.Config{}, func(r task.Registrar) error {
		return greet.Handle(r, func(_ context.Context, name string) (string, error) { return "hello " + name, nil })
	})

	if err := c.AddQueue(ctx, "letters", consumer.QueueConfig{Workers: 2}); err != nil {
		panic(err)
	}
	future, err := greet.Submit(ctx, s, "world", task.WithQueue("letters"))
	if err != nil {
		panic(err)
	}
	fmt.Println(future.Get(ctx))
	fmt.Println(c.RemoveQueue(ctx, "letters"), len(c.Stats().Queues))
	// Output:
	// hello world <nil>
	// <nil> 1
}
