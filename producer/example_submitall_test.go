package producer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// Many tasks are submitted at once, without a wait for each. A task that cannot be submitted has
// its own error and does not delay the others.
func ExampleProducer_SubmitAll() {
	square := task.New[int, int]("math.square")

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return square.Handle(r, func(_ context.Context, n int) (int, error) { return n * n, nil })
	})

	ctx := context.Background()
	futures, err := square.SubmitAll(ctx, s, []int{1, 2, 3, 4})
	if err != nil {
		panic(err)
	}
	sum := 0
	for _, f := range futures {
		n, err := f.Get(ctx)
		if err != nil {
			panic(err)
		}
		sum += n
	}
	fmt.Println("1 + 4 + 9 + 16 =", sum)

	pending, err := s.SubmitAll(ctx, []task.Call{
		square.Call(5),
		square.Call(6, task.WithQueue("no such queue")), // names have no spaces
	})
	for i, err := range broker.BatchErrors(err, len(pending)) {
		fmt.Println(i, pending[i] != nil, errors.Is(err, task.ErrBadName))
	}
	// Output:
	// 1 + 4 + 9 + 16 = 30
	// 0 true false
	// 1 false true
}
