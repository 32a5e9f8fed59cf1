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

// When the context of Run ends the consumer takes nothing more, and Run returns when what it had begun is done. The
// handler's own context goes on. Programs call RunUntilSignal, for which SIGTERM is that end.
func ExampleConsumer_Run() {
	b := membroker.New()
	p, err := producer.New(producer.Config{Broker: b})
	must(err)
	c, err := consumer.New(consumer.Config{Broker: b})
	must(err)
	copyFile := task.New[string, bool]("copy")
	started, goOn := make(chan string), make(chan bool)
	must(copyFile.Handle(c, func(ctx context.Context, name string) (bool, error) {
		started <- name
		<-goOn
		fmt.Println(name, "copied, context:", ctx.Err())
		return true, nil
	}))

	run, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(run) }()

	ctx, cancel := soon()
	defer cancel()
	_, err = copyFile.Submit(ctx, p, "a.txt", task.WithIgnoreResult(true))
	must(err)
	fmt.Println(<-started, "begun")
	stop()
	goOn <- true
	fmt.Println("Run returned", <-ended)
	must(errors.Join(p.Close(ctx), b.Close(ctx)))
	// Output:
	// a.txt begun
	// a.txt copied, context: <nil>
	// Run returned <nil>
}
