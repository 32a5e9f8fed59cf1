package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// An event bus tells any number of listeners what happens to tasks. Tasks never wait for it.
func Example_events() {
	bus := memevents.New(memevents.Config{})
	defer bus.Close(context.Background())
	upload := task.New[string, int]("upload", task.WithRetryDelay(200*time.Millisecond))

	p, c, run := inMemory(producer.Config{Events: bus}, consumer.Config{Events: bus})
	must(upload.Handle(c, func(ctx context.Context, name string) (int, error) {
		if r, _ := task.FromContext(ctx); r.Retries == 0 {
			return 0, task.Retry(errors.New("timeout"))
		}
		return len(name), nil
	}))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	listener, err := bus.Subscribe(ctx, events.Filter{TaskID: "u-1"})
	must(err)
	_, err = upload.Submit(ctx, p, "a.txt", task.WithID("u-1"))
	must(err)
	for last := ""; last != events.TaskSucceeded; {
		e, err := listener.Receive(ctx)
		must(err)
		if last = e.Type; e.Type == events.TaskSent {
			continue // it is another node's, and may come after what follows it
		}
		if e.Type == events.TaskFailed {
			fmt.Println(e.Type, "with", e.Exception, "and retried:", e.Retry)
			continue
		}
		fmt.Println(e.Type)
	}
	// Output:
	// task-received
	// task-started
	// task-failed with timeout and retried: true
	// task-received
	// task-started
	// task-succeeded
}
