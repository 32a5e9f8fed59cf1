package consumer_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A message that is unreadable, unknown or fatal goes to the dead letters of its queue, byte for
// byte and with the reason. It can be inspected, requeued and removed there.
func Example_deadLetters() {
	b := membroker.New()
	s := tasktest.New(nil)
	defer s.Close()
	ctx := context.Background()
	if err := b.Declare(ctx, broker.Queue{Name: "default"}); err != nil {
		panic(err)
	}
	if err := b.Publish(ctx, "default", &broker.Message{
		ID: "m-1", ContentType: "application/json", Body: []byte(`{"task": "a", "task": "b"}`), Priority: task.DefaultPriority,
	}); err != nil {
		panic(err)
	}

	s.Start(consumer.Config{
		Broker: b, Logger: slog.New(slog.DiscardHandler), // it would say so, too
	}, nil)

	var dead []broker.Dead
	for len(dead) == 0 { // until the consumer has looked at it
		var err error
		if dead, err = broker.ListDead(ctx, b, "default", 1); err != nil {
			panic(err)
		}
	}
	fmt.Println(dead[0].Message.ID, string(dead[0].Message.Body))
	fmt.Println(dead[0].Reason != "")
	// Output:
	// m-1 {"task": "a", "task": "b"}
	// true
}
