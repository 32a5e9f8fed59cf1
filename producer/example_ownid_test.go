package producer_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A submission may be repeated with the same id, for example after broker.ErrIndeterminate or a
// crash of the submitter. It is the same task: both futures get its one result. The task may run
// twice, as every at-least-once task.
func ExampleProducer_Submit_ownID() {
	charge := task.New[int, string]("invoice.charge")

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return charge.Handle(r, func(_ context.Context, invoice int) (string, error) {
			return fmt.Sprintf("invoice %d charged", invoice), nil
		})
	})

	ctx := context.Background()
	first, err := charge.Submit(ctx, s, 1042, task.WithID("charge-1042"))
	if err != nil {
		panic(err)
	}
	again, err := charge.Submit(ctx, s, 1042, task.WithID("charge-1042"))
	if err != nil {
		panic(err)
	}
	fmt.Println(first.Get(ctx))
	fmt.Println(again.Get(ctx))
	fmt.Println(first.ID() == again.ID())
	// Output:
	// invoice 1042 charged <nil>
	// invoice 1042 charged <nil>
	// true
}
