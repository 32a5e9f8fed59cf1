package task_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A definition connects both sides: the consumer's function and the producer's call and future have
// its types.
func ExampleTask() {
	greet := task.New[string, string]("greet")

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return greet.Handle(r, func(_ context.Context, name string) (string, error) { return "Hello, " + name, nil })
	})

	ctx := context.Background()
	future, err := greet.Submit(ctx, s, "Ada")
	if err != nil {
		panic(err)
	}
	fmt.Println(future.Get(ctx))

	futures, err := greet.SubmitAll(ctx, s, []string{"Grace", "Barbara"})
	if err != nil {
		panic(err)
	}
	for _, f := range futures {
		fmt.Println(f.Get(ctx))
	}
	// Output:
	// Hello, Ada <nil>
	// Hello, Grace <nil>
	// Hello, Barbara <nil>
}
