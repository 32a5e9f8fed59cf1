package producer_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A task is defined once, with the types of its arguments and result. The consumer registers its
// function; the producer submits it and gets a future.
func ExampleProducer_Submit() {
	type pair struct{ A, B int }
	add := task.New[pair, int]("math.add")

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return add.Handle(r, func(_ context.Context, in pair) (int, error) { return in.A + in.B, nil })
	})

	ctx := context.Background()
	future, err := add.Submit(ctx, s, pair{1, 2}) // nil: the broker has confirmed it
	if err != nil {
		panic(err)
	}
	sum, err := future.Get(ctx)
	fmt.Println(sum, err)
	// Output: 3 <nil>
}
