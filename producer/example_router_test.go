package producer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// A router picks the queue by the task's name; a call may name another. The producer declares the router's queues, so that
// tasks can be queued before a consumer exists. Any other queue must be there already.
func ExampleConfig_router() {
	routes, err := router.NewTable(router.TableConfig{Routes: []router.Route{
		{Pattern: "mail.*", Queue: "mail"},
		{Pattern: "report.#", Queue: "reports"},
	}})
	must(err)

	p, c, run := inMemory(producer.Config{Router: routes}, consumer.Config{Queues: consumer.QueuesOf(routes)})
	where := func(ctx context.Context, _ string) (string, error) {
		r, _ := task.FromContext(ctx)
		return r.Name + " ran from queue " + r.Queue, nil
	}
	send, yearly, other := task.New[string, string]("mail.send"), task.New[string, string]("report.sales.yearly"), task.New[string, string]("other")
	must(errors.Join(send.Handle(c, where), yearly.Handle(c, where), other.Handle(c, where)))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	show := func(f *task.Future[string], err error) {
		must(err)
		fmt.Println(f.Get(ctx))
	}
	show(send.Submit(ctx, p, ""))
	show(yearly.Submit(ctx, p, ""))
	show(other.Submit(ctx, p, ""))
	show(send.Submit(ctx, p, "", task.WithQueue("reports")))

	_, err = send.Submit(ctx, p, "", task.WithQueue("elsewhere"))
	fmt.Println("no such queue:", errors.Is(err, broker.ErrNoQueue))
	// Output:
	// mail.send ran from queue mail <nil>
	// report.sales.yearly ran from queue reports <nil>
	// other ran from queue default <nil>
	// mail.send ran from queue reports <nil>
	// no such queue: true
}
