package consumer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// When the context of Run ends, the consumer takes no more tasks, and Run returns after the running
// tasks. The contexts of their handlers continue. Programs call RunUntilSignal, which stops Run at
// SIGTERM.
func ExampleConsumer_Run() {
	b := membroker.New()
	p, err := producer.New(producer.Config{Broker: b})
	if err != nil {
		panic(err)
	}
	c, err := consumer.New(consumer.Config{Broker: b})
	if err != nil {
		panic(err)
	}
	copyFile := task.New[string, bool]("copy")
	started, goOn := make(chan string), make(chan bool)
	if err := copyFile.Handle(c, func(ctx context.Context, name string) (bool, error) {
		started <- name
		<-goOn
		fmt.Println(name, "copied, context:", ctx.Err())
		return true, nil
	}); err != nil {
		panic(err)
	}

	run, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(run) }()

	ctx := context.Background()
	_, err = copyFile.Submit(ctx, p, "a.txt", task.WithIgnoreResult(true))
	if err != nil {
		panic(err)
	}
	fmt.Println(<-started, "begun")
	stop()
	goOn <- true
	fmt.Println("Run returned", <-ended)
	if err := errors.Join(p.Close(ctx), b.Close(ctx)); err != nil {
		panic(err)
	}
	// Output:
	// a.txt begun
	// a.txt copied, context: <nil>
	// Run returned <nil>
}
