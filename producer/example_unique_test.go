package producer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// A web hook is delivered twice. The second submission sends nothing: it is answered with the id
// and the result of the first. Which one was first shows an id of one's own.
func ExampleProducer_Submit_unique() {
	pay := task.New[int, string]("invoice.pay")

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(pay.Handle(c, func(_ context.Context, invoice int) (string, error) {
		fmt.Println("paying", invoice)
		return fmt.Sprintf("invoice %d is paid", invoice), nil
	}))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	once := task.WithUnique("invoice 17", 24*time.Hour)
	for _, delivery := range []task.ID{"delivery-1", "delivery-2"} {
		f, err := pay.Submit(ctx, p, 17, once, task.WithID(delivery))
		must(err)
		result, err := f.Get(ctx)
		must(err)
		fmt.Println(delivery, "first:", f.ID() == delivery, "-", result)
	}
	// Output:
	// paying 17
	// delivery-1 first: true - invoice 17 is paid
	// delivery-2 first: false - invoice 17 is paid
}

// forgetful is a broker whose first confirm is lost.
type forgetful struct {
	*membroker.Broker
	lost bool
}

func (b *forgetful) Publish(ctx context.Context, queue string, m *broker.Message) error {
	if b.lost {
		return b.Broker.Publish(ctx, queue, m)
	}
	b.lost = true
	return broker.ErrIndeterminate
}

// The outcome of a submission is unknown. Its key stays with it, so that no other one is sent. The
// error names the task; the submission of that id can be repeated.
func ExampleUniqueError() {
	pay := task.New[int, string]("invoice.pay")

	b := &forgetful{Broker: membroker.New()}
	p, c, run := inMemory(producer.Config{Broker: b}, consumer.Config{Broker: b})
	must(pay.Handle(c, func(_ context.Context, invoice int) (string, error) { return "paid", nil }))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	once := task.WithUnique("invoice 17", 24*time.Hour)
	_, err := pay.Submit(ctx, p, 17, once)
	unknown, ok := errors.AsType[*producer.UniqueError](err)
	fmt.Println("unknown:", ok && errors.Is(err, broker.ErrIndeterminate))

	f, err := pay.Submit(ctx, p, 17, once, task.WithID(unknown.Task))
	must(err)
	fmt.Println(f.Get(ctx))
	// Output:
	// unknown: true
	// paid <nil>
}
