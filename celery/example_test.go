package celery_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/celery"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// A producer and a consumer share the broker and the result backend of a Celery application. Open
// connects to no server.
func ExampleOpen() {
	type renderArgs struct {
		Order  int    `celery:"0,order"`
		Format string `celery:"1,format,optional"`
	}
	render := task.New[renderArgs, string]("reports.render", task.WithQueue("reports"))

	ctx := context.Background()
	swarm, err := celery.Open(ctx, "amqp://user:password@localhost//", celery.Options{Results: "redis://localhost/0"})
	if err != nil {
		panic(err)
	}
	c, err := swarm.Consumer(consumer.Config{Queues: map[string]consumer.QueueConfig{"reports": {}}})
	if err != nil {
		panic(err)
	}
	err = render.Handle(c, func(_ context.Context, a renderArgs) (string, error) {
		return fmt.Sprintf("order-%d.%s", a.Order, a.Format), nil
	})
	if err != nil {
		panic(err)
	}
	p, err := swarm.Producer(producer.Config{})
	if err != nil {
		panic(err)
	}
	fmt.Println(c.Names())
	if err := errors.Join(p.Close(ctx), swarm.Close(ctx)); err != nil {
		panic(err)
	}

	_, err = celery.Open(ctx, "sqs://", celery.Options{})
	fmt.Println(errors.Is(err, broker.ErrUnsupported))
	// Output:
	// [reports.render]
	// true
}
