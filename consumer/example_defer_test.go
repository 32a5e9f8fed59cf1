package consumer_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/deferrals"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A task asks another service and ends with task.Defer. Its answer comes later from any process:
// here from the program itself, otherwise from an HTTP handler or a listener on a queue (package
// jobs/callback). Until then the task holds no worker, and its future waits.
func Example_answersFromOutside() {
	store, err := memjobs.New(memjobs.Config{}) // in real programs a database, see jobs/sqljobs
	if err != nil {
		panic(err)
	}
	service, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		panic(err)
	}
	waiting, err := deferrals.New(deferrals.Config{Jobs: service})
	if err != nil {
		panic(err)
	}
	s := tasktest.New(nil)
	defer s.Close()
	sent := make(chan string, 1)
	charge := task.New[string, string]("charge")

	s.Start(consumer.Config{Deferrals: waiting}, func(r task.Registrar) error {
		return charge.Handle(r, func(ctx context.Context, order string) (string, error) {
			if err := task.Expect(ctx, order); err != nil { // on disk before the request is sent
				return "", err
			}
			sent <- order // the request
			return "", task.Defer(order)
		})
	})

	ctx := context.Background()
	future, err := charge.Submit(ctx, s, "order-7")
	if err != nil {
		panic(err)
	}

	order := <-sent
	receipt, err := service.Complete(ctx, "charge", order, "paid")
	if err != nil {
		panic(err)
	}
	fmt.Println(receipt.Kind)
	fmt.Println(future.Get(ctx))

	receipt, err = service.Complete(ctx, "charge", order, "paid again")
	if err != nil {
		panic(err)
	}
	fmt.Println(receipt.Kind)
	s.Close()
	if err := service.Close(ctx); err != nil {
		panic(err)
	}
	if err := store.Close(ctx); err != nil {
		panic(err)
	}
	// Output:
	// accepted
	// paid <nil>
	// duplicate
}
