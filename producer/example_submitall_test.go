package producer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// Many tasks are submitted at once, without a wait for each. What cannot be submitted has an error of its own, and the
// others are not held up by it.
func ExampleProducer_SubmitAll() {
	square := task.New[int, int]("math.square")

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(square.Handle(c, func(_ context.Context, n int) (int, error) { return n * n, nil }))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	futures, err := square.SubmitAll(ctx, p, []int{1, 2, 3, 4})
	must(err)
	sum := 0
	for _, f := range futures {
		n, err := f.Get(ctx)
		must(err)
		sum += n
	}
	fmt.Println("1 + 4 + 9 + 16 =", sum)

	pending, err := p.SubmitAll(ctx, []task.Call{
		square.Call(5),
		square.Call(6, task.WithQueue("no such queue")), // spaces are not for names
	})
	for i, err := range broker.BatchErrors(err, len(pending)) {
		fmt.Println(i, pending[i] != nil, errors.Is(err, task.ErrBadName))
	}
	// Output:
	// 1 + 4 + 9 + 16 = 30
	// 0 true false
	// 1 false true
}
