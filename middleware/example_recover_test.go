package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A panic fails its task only. The submitter gets its text and the stack. The consumer has Recover
// built in.
func ExampleRecover() {
	index := task.New[int, string]("index")

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return index.Handle(r, func(_ context.Context, i int) (string, error) {
			return []string{"zero", "one"}[i], nil
		})
	})

	ctx := context.Background()
	future, err := index.Submit(ctx, s, 2)
	if err != nil {
		panic(err)
	}
	_, err = future.Get(ctx)
	fmt.Println(errors.Is(err, task.ErrPanic), err)
	remote, _ := errors.AsType[*task.RemoteError](err)
	fmt.Println("with a stack:", strings.Contains(remote.Stack, "ExampleRecover"))

	future, err = index.Submit(ctx, s, 1) // the worker still runs
	if err != nil {
		panic(err)
	}
	fmt.Println(future.Get(ctx))
	// Output:
	// true panic: runtime error: index out of range [2] with length 2
	// with a stack: true
	// one <nil>
}
