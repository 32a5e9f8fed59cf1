package producer_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// A submission may be repeated with the same id, say after broker.ErrIndeterminate or a crash of the submitter: it is the
// same task. Both futures get its one result. (It may run twice, as every task that runs at least once.)
func ExampleProducer_Submit_ownID() {
	charge := task.New[int, string]("invoice.charge")

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(charge.Handle(c, func(_ context.Context, invoice int) (string, error) {
		return fmt.Sprintf("invoice %d charged", invoice), nil
	}))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	first, err := charge.Submit(ctx, p, 1042, task.WithID("charge-1042"))
	must(err)
	again, err := charge.Submit(ctx, p, 1042, task.WithID("charge-1042"))
	must(err)
	fmt.Println(first.Get(ctx))
	fmt.Println(again.Get(ctx))
	fmt.Println(first.ID() == again.ID())
	// Output:
	// invoice 1042 charged <nil>
	// invoice 1042 charged <nil>
	// true
}
