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
)

// A task may be written by hand, or by a program in any language that can publish JSON: a name and arguments are enough.
// The handler is the same as for tasks that were submitted from Go.
func Example_jsonByHand() {
	type mail struct {
		To      string `json:"to"`
		Subject string `json:"subject"`
	}
	b := membroker.New()
	send := task.New[mail, string]("email.send")

	p, c, run := inMemory(producer.Config{Broker: b}, consumer.Config{Broker: b})
	must(send.Handle(c, func(_ context.Context, m mail) (string, error) {
		return fmt.Sprintf("%q sent to %s", m.Subject, m.To), nil
	}))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	must(b.Declare(ctx, broker.Queue{Name: "default"}))
	must(b.Publish(ctx, "default", &broker.Message{
		ID: "by-hand-1", ContentType: serializer.ContentJSON, Priority: task.DefaultPriority,
		Body: []byte(`{"task": "email.send", "args": {"to": "a@example.org", "subject": "Hello"}, "max_retries": 5}`),
	}))
	fmt.Println(task.FutureOf[string](p.Pending("by-hand-1")).Get(ctx))
	// Output: "Hello" sent to a@example.org <nil>
}
