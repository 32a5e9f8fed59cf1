package consumer_test

import (
	"bytes"
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// A queue may be fed by something that knows nothing of tasks: its messages are bytes without a name. They go to the task
// that the queue is configured for.
func ExampleQueueConfig_rawBytes() {
	b := membroker.New()
	line := task.New[[]byte, int]("log.line")

	_, c, run := inMemory(producer.Config{Broker: b}, consumer.Config{
		Broker: b,
		Queues: map[string]consumer.QueueConfig{"syslog": {Task: "log.line"}},
	})
	lengths := make(chan int)
	must(line.Handle(c, func(_ context.Context, data []byte) (int, error) {
		lengths <- len(bytes.TrimSpace(data))
		return 0, nil
	}))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	must(b.Declare(ctx, broker.Queue{Name: "syslog"}))
	must(b.Publish(ctx, "syslog", &broker.Message{
		ID: "m-1", ContentType: "application/octet-stream", Body: []byte("disk full\n"), Priority: task.DefaultPriority,
	}))
	fmt.Println(<-lengths, "bytes")
	// Output: 9 bytes
}
