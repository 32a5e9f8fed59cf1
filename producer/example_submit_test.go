package producer_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// A task is defined once, with the types of its arguments and its result. The consumer gives it a function, the producer
// submits it and gets a future.
func ExampleProducer_Submit() {
	type pair struct{ A, B int }
	add := task.New[pair, int]("math.add")

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(add.Handle(c, func(_ context.Context, in pair) (int, error) { return in.A + in.B, nil }))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	future, err := add.Submit(ctx, p, pair{1, 2}) // nil: the broker has confirmed it
	must(err)
	sum, err := future.Get(ctx)
	fmt.Println(sum, err)
	// Output: 3 <nil>
}
