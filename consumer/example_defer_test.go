package consumer_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/deferrals"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// A task asks another service and ends with task.Defer. Its answer comes later, by whoever gets it: here the program itself, else an HTTP handler
// or a listener on a queue (package jobs/callback), in any process. Until then the task holds no worker, and its future waits.
func Example_answersFromOutside() {
	store, err := memjobs.New(memjobs.Config{}) // in real programs a database, see jobs/sqljobs
	must(err)
	service, err := jobs.New(jobs.Config{Store: store})
	must(err)
	waiting, err := deferrals.New(deferrals.Config{Jobs: service})
	must(err)
	p, c, run := inMemory(producer.Config{}, consumer.Config{Deferrals: waiting})

	sent := make(chan string, 1)
	charge := task.New[string, string]("charge")
	must(charge.Handle(c, func(ctx context.Context, order string) (string, error) {
		if err := task.Expect(ctx, order); err != nil { // on disk before the request is sent
			return "", err
		}
		sent <- order // the request
		return "", task.Defer(order)
	}))
	done := run()

	ctx, cancel := soon()
	defer cancel()
	future, err := charge.Submit(ctx, p, "order-7")
	must(err)

	order := <-sent
	receipt, err := service.Complete(ctx, "charge", order, "paid")
	must(err)
	fmt.Println(receipt.Kind)
	fmt.Println(future.Get(ctx))

	receipt, err = service.Complete(ctx, "charge", order, "paid again")
	must(err)
	fmt.Println(receipt.Kind)
	done()
	must(service.Close(ctx))
	must(store.Close(ctx))
	// Output:
	// accepted
	// paid <nil>
	// duplicate
}
