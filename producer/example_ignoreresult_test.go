package producer_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// An ignored result is neither stored nor sent, which makes a task cheaper. Its future succeeds at
// once.
func ExampleProducer_Submit_ignoreResult() {
	ping := task.New[string, int]("ping", task.WithIgnoreResult(true))

	s := tasktest.New(nil)
	defer s.Close()
	pinged := make(chan string)

	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return ping.Handle(r, func(_ context.Context, host string) (int, error) {
			pinged <- host
			return 7, nil
		})
	})

	ctx := context.Background()
	future, err := ping.Submit(ctx, s, "example.org")
	if err != nil {
		panic(err)
	}
	fmt.Println(future.Get(ctx)) // before the task has run
	fmt.Println("pinged", <-pinged)

	// A call goes before the definition: this one wants the result.
	future, err = ping.Submit(ctx, s, "example.com", task.WithIgnoreResult(false))
	if err != nil {
		panic(err)
	}
	fmt.Println("pinged", <-pinged)
	fmt.Println(future.Get(ctx))
	// Output:
	// 0 <nil>
	// pinged example.org
	// pinged example.com
	// 7 <nil>
}
