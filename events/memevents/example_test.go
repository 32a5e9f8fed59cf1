package memevents_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
)

func Example() {
	ctx := context.Background()
	bus := memevents.New(memevents.Config{})
	defer bus.Close(ctx)

	failures, err := bus.Subscribe(ctx, events.Filter{Types: []string{events.TaskFailed}})
	if err != nil {
		fmt.Println(err)
		return
	}
	node := bus.View() // as another process would have it
	defer node.Close(ctx)
	for _, e := range []events.Event{
		{Type: events.TaskStarted, TaskID: "task-1", PID: 4711},
		{Type: events.TaskFailed, TaskID: "task-1", Exception: "no such host", Retry: true},
	} {
		if err := node.Publish(ctx, e); err != nil {
			fmt.Println(err)
			return
		}
	}
	e, err := failures.Receive(ctx)
	fmt.Println(e.Type, e.TaskID, e.Exception, e.Retry, err)
	// Output:
	// task-failed task-1 no such host true <nil>
}
