package consumer_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// Any program that can publish JSON can submit a task: a name and arguments are enough. The handler
// is the same as for tasks that Go programs submit.
func Example_jsonByHand() {
	type mail struct {
		To      string `json:"to"`
		Subject string `json:"subject"`
	}
	b := membroker.New()
	send := task.New[mail, string]("email.send")

	s := tasktest.New(nil)
	defer s.Close()
	p := s.Producer(producer.Config{Broker: b})
	s.Start(consumer.Config{Broker: b}, func(r task.Registrar) error {
		return send.Handle(r, func(_ context.Context, m mail) (string, error) {
			return fmt.Sprintf("%q sent to %s", m.Subject, m.To), nil
		})
	})

	ctx := context.Background()
	if err := b.Declare(ctx, broker.Queue{Name: "default"}); err != nil {
		panic(err)
	}
	if err := b.Publish(ctx, "default", &broker.Message{
		ID: "by-hand-1", ContentType: serializer.ContentJSON, Priority: task.DefaultPriority,
		Body: []byte(`{"task": "email.send", "args": {"to": "a@example.org", "subject": "Hello"}, "max_retries": 5}`),
	}); err != nil {
		panic(err)
	}
	fmt.Println(task.FutureOf[string](p.Pending("by-hand-1")).Get(ctx))
	// Output: "Hello" sent to a@example.org <nil>
}
