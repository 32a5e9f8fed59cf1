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
	"github.com/swarmiji/swarmiji/tasktest"
)

// An event bus reports to any number of listeners what happens to tasks. Tasks never wait for the
// bus.
func Example_events() {
	bus := memevents.New(memevents.Config{})
	defer bus.Close(context.Background())
	upload := task.New[string, int]("upload", task.WithRetryDelay(200*time.Millisecond))

	s := tasktest.New(nil)
	defer s.Close()
	p := s.Producer(producer.Config{Events: bus})
	s.Start(consumer.Config{Events: bus}, func(r task.Registrar) error {
		return upload.Handle(r, func(ctx context.Context, name string) (int, error) {
			if r, _ := task.FromContext(ctx); r.Retries == 0 {
				return 0, task.Retry(errors.New("timeout"))
			}
			return len(name), nil
		})
	})

	ctx := context.Background()
	listener, err := bus.Subscribe(ctx, events.Filter{TaskID: "u-1"})
	if err != nil {
		panic(err)
	}
	_, err = upload.Submit(ctx, p, "a.txt", task.WithID("u-1"))
	if err != nil {
		panic(err)
	}
	for last := ""; last != events.TaskSucceeded; {
		e, err := listener.Receive(ctx)
		if err != nil {
			panic(err)
		}
		if last = e.Type; e.Type == events.TaskSent {
			continue // the producer sends this one, and it may come late
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
