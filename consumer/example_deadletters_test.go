package consumer_test

import (
	"fmt"
	"log/slog"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// What nobody can read, run or survive goes to the dead letters of its queue, byte for byte and with the reason. From there
// it can be looked at, put back, or removed.
func Example_deadLetters() {
	b := membroker.New()
	_, _, run := inMemory(producer.Config{Broker: b}, consumer.Config{
		Broker: b, Logger: slog.New(slog.DiscardHandler), // it would say so, too
	})
	ctx, cancel := soon()
	defer cancel()
	must(b.Declare(ctx, broker.Queue{Name: "default"}))
	must(b.Publish(ctx, "default", &broker.Message{
		ID: "m-1", ContentType: "application/json", Body: []byte(`{"task": "a", "task": "b"}`), Priority: task.DefaultPriority,
	}))
	defer run()()

	dead := waitForDead(ctx, b)
	fmt.Println(dead.Message.ID, string(dead.Message.Body))
	fmt.Println(dead.Reason != "")
	// Output:
	// m-1 {"task": "a", "task": "b"}
	// true
}
