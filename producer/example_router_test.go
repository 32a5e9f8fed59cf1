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
	"github.com/swarmiji/swarmiji/tasktest"
)

// A router selects the queue by the task's name; a call may override it. The producer declares the
// router's queues, so tasks can be queued before a consumer exists. Other queues must exist
// already.
func ExampleConfig_router() {
	routes, err := router.NewTable(router.TableConfig{Routes: []router.Route{
		{Pattern: "mail.*", Queue: "mail"},
		{Pattern: "report.#", Queue: "reports"},
	}})
	if err != nil {
		panic(err)
	}

	s := tasktest.New(nil)
	defer s.Close()
	p := s.Producer(producer.Config{Router: routes})
	where := func(ctx context.Context, _ string) (string, error) {
		r, _ := task.FromContext(ctx)
		return r.Name + " ran from queue " + r.Queue, nil
	}
	send, yearly, other := task.New[string, string]("mail.send"), task.New[string, string]("report.sales.yearly"), task.New[string, string]("other")

	s.Start(consumer.Config{Queues: consumer.QueuesOf(routes)}, func(r task.Registrar) error {
		return errors.Join(
			send.Handle(r, where),
			yearly.Handle(r, where),
			other.Handle(r, where),
		)
	})

	ctx := context.Background()
	show := func(f *task.Future[string], err error) {
		if err != nil {
			panic(err)
		}
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
