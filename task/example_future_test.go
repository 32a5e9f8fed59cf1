package task_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// A definition ties both sides together: the consumer's function and the producer's call and future have its types.
func ExampleTask() {
	greet := task.New[string, string]("greet")

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(greet.Handle(c, func(_ context.Context, name string) (string, error) { return "Hello, " + name, nil }))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	future, err := greet.Submit(ctx, p, "Ada")
	must(err)
	fmt.Println(future.Get(ctx))

	futures, err := greet.SubmitAll(ctx, p, []string{"Grace", "Barbara"})
	must(err)
	for _, f := range futures {
		fmt.Println(f.Get(ctx))
	}
	// Output:
	// Hello, Ada <nil>
	// Hello, Grace <nil>
	// Hello, Barbara <nil>
}
