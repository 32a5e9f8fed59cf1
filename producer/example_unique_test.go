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
	"github.com/swarmiji/swarmiji/tasktest"
)

// A web hook is delivered twice. The second submission sends nothing and returns the id and the
// result of the first. An id of your own shows which one was first.
func ExampleProducer_Submit_unique() {
	pay := task.New[int, string]("invoice.pay")

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return pay.Handle(r, func(_ context.Context, invoice int) (string, error) {
			fmt.Println("paying", invoice)
			return fmt.Sprintf("invoice %d is paid", invoice), nil
		})
	})

	ctx := context.Background()
	once := task.WithUnique("invoice 17", 24*time.Hour)
	for _, delivery := range []task.ID{"delivery-1", "delivery-2"} {
		f, err := pay.Submit(ctx, s, 17, once, task.WithID(delivery))
		if err != nil {
			panic(err)
		}
		result, err := f.Get(ctx)
		if err != nil {
			panic(err)
		}
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

// If the outcome of a submission is unknown, its key stays reserved, so that no other task is sent.
// The error names the task; repeat the submission with its id.
func ExampleUniqueError() {
	pay := task.New[int, string]("invoice.pay")

	b := &forgetful{Broker: membroker.New()}
	s := tasktest.New(nil)
	defer s.Close()
	p := s.Producer(producer.Config{Broker: b})
	s.Start(consumer.Config{Broker: b}, func(r task.Registrar) error {
		return pay.Handle(r, func(_ context.Context, invoice int) (string, error) { return "paid", nil })
	})

	ctx := context.Background()
	once := task.WithUnique("invoice 17", 24*time.Hour)
	_, err := pay.Submit(ctx, p, 17, once)
	unknown, ok := errors.AsType[*producer.UniqueError](err)
	fmt.Println("unknown:", ok && errors.Is(err, broker.ErrIndeterminate))

	f, err := pay.Submit(ctx, p, 17, once, task.WithID(unknown.Task))
	if err != nil {
		panic(err)
	}
	fmt.Println(f.Get(ctx))
	// Output:
	// unknown: true
	// paid <nil>
}
