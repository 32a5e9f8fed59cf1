package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// A panic fails its task and nothing else. The submitter gets its text and the stack. The consumer has Recover built in.
func ExampleRecover() {
	index := task.New[int, string]("index")

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(index.Handle(c, func(_ context.Context, i int) (string, error) {
		return []string{"zero", "one"}[i], nil
	}))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	future, err := index.Submit(ctx, p, 2)
	must(err)
	_, err = future.Get(ctx)
	fmt.Println(errors.Is(err, task.ErrPanic), err)
	remote, _ := errors.AsType[*task.RemoteError](err)
	fmt.Println("with a stack:", strings.Contains(remote.Stack, "ExampleRecover"))

	future, err = index.Submit(ctx, p, 1) // the worker goes on
	must(err)
	fmt.Println(future.Get(ctx))
	// Output:
	// true panic: runtime error: index out of range [2] with length 2
	// with a stack: true
	// one <nil>
}
