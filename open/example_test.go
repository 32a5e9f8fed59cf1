package open_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// ExampleSwarm_Consumer runs a producer and a consumer with all parts of a URL: results, events,
// revocations and reports about silent nodes.
func ExampleSwarm_Consumer() {
	ctx, stop := context.WithCancel(context.Background())
	swarm, err := open.Open(ctx, "mem://", open.Options{})
	must(err)
	greet := task.New[string, string]("greet")

	c, err := swarm.Consumer(consumer.Config{})
	must(err)
	must(greet.Handle(c, func(_ context.Context, name string) (string, error) { return "hello " + name, nil }))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()

	p, err := swarm.Producer(producer.Config{})
	must(err)
	future, err := greet.Submit(ctx, p, "ada")
	must(err)
	fmt.Println(future.Get(ctx))

	stop()
	must(<-ended)
	must(errors.Join(p.Close(context.Background()), swarm.Close(context.Background())))
	// Output: hello ada <nil>
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
