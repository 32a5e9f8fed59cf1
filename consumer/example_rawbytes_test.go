package consumer_test

import (
	"bytes"
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// Programs that know nothing of tasks may publish plain bytes to a queue. QueueConfig.Task names
// the task that gets them.
func ExampleQueueConfig_rawBytes() {
	b := membroker.New()
	line := task.New[[]byte, int]("log.line")

	s := tasktest.New(nil)
	defer s.Close()
	lengths := make(chan int)

	s.Start(consumer.Config{
		Broker: b,
		Queues: map[string]consumer.QueueConfig{"syslog": {Task: "log.line"}},
	}, func(r task.Registrar) error {
		return line.Handle(r, func(_ context.Context, data []byte) (int, error) {
			lengths <- len(bytes.TrimSpace(data))
			return 0, nil
		})
	})

	ctx := context.Background()
	if err := b.Declare(ctx, broker.Queue{Name: "syslog"}); err != nil {
		panic(err)
	}
	if err := b.Publish(ctx, "syslog", &broker.Message{
		ID: "m-1", ContentType: "application/octet-stream", Body: []byte("disk full\n"), Priority: task.DefaultPriority,
	}); err != nil {
		panic(err)
	}
	fmt.Println(<-lengths, "bytes")
	// Output: 9 bytes
}
