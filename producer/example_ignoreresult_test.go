package producer_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// Where nobody wants the result it is neither stored nor sent, which makes a task cheaper. Its future succeeds at once.
func ExampleProducer_Submit_ignoreResult() {
	ping := task.New[string, int]("ping", task.WithIgnoreResult(true))

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	pinged := make(chan string)
	must(ping.Handle(c, func(_ context.Context, host string) (int, error) {
		pinged <- host
		return 7, nil
	}))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	future, err := ping.Submit(ctx, p, "example.org")
	must(err)
	fmt.Println(future.Get(ctx)) // before the task has run
	fmt.Println("pinged", <-pinged)

	// A call goes before the definition: this one wants the result.
	future, err = ping.Submit(ctx, p, "example.com", task.WithIgnoreResult(false))
	must(err)
	fmt.Println("pinged", <-pinged)
	fmt.Println(future.Get(ctx))
	// Output:
	// 0 <nil>
	// pinged example.org
	// pinged example.com
	// 7 <nil>
}
