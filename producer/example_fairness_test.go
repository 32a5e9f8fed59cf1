package producer_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A queue with Fair starts tasks in turns over their keys. The single task of one customer does not
// wait for the backlog of another. A customer of weight 2 starts two tasks in the time of one.
func ExampleConfig_fairness() {
	send := task.New[string, string]("send")

	s := tasktest.New(nil)
	defer s.Close()
	p := s.Producer(producer.Config{Queues: []broker.Queue{{Name: "default", Fair: true}}})
	order := make(chan string, 9)

	ctx := context.Background()
	submit := func(mail, customer string, weight int) {
		_, err := send.Submit(ctx, p, mail, task.WithFairnessKey(customer), task.WithFairnessWeight(weight))
		if err != nil {
			panic(err)
		}
	}
	for _, mail := range []string{"big 1", "big 2", "big 3", "big 4"} {
		submit(mail, "big", 1)
	}
	for _, mail := range []string{"paid 1", "paid 2", "paid 3", "paid 4"} {
		submit(mail, "paid", 2)
	}
	submit("small 1", "small", 1)

	s.Start(consumer.Config{Queues: map[string]consumer.QueueConfig{"default": {Workers: 1, Prefetch: 1, Fair: true}}}, func(r task.Registrar) error {
		return send.Handle(r, func(_ context.Context, mail string) (string, error) {
			order <- mail
			return mail, nil
		})
	}) // all of them wait already
	for range 9 {
		fmt.Println(<-order)
	}
	// Output:
	// big 1
	// paid 1
	// small 1
	// paid 2
	// big 2
	// paid 3
	// paid 4
	// big 3
	// big 4
}
