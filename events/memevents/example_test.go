package memevents_test

import (
	"context"
	"fmt"
	"time"

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
	node := bus.View() // like a bus in another process
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

// A monitor that starts late receives the kept events first, and then the new ones.
func ExampleBus_Replay() {
	ctx := context.Background()
	bus := memevents.New(memevents.Config{
		Retain: events.Retention{Age: time.Hour, Types: []string{events.TaskFailed}},
	})
	defer bus.Close(ctx)
	for _, e := range []events.Event{
		{Type: events.TaskStarted, TaskID: "task-1"}, // not of a kept type
		{Type: events.TaskFailed, TaskID: "task-1", Exception: "no such host"},
	} {
		if err := bus.Publish(ctx, e); err != nil {
			fmt.Println(err)
			return
		}
	}
	failures, err := bus.Replay(ctx, events.Filter{}, time.Now().Add(-10*time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer failures.Close(ctx)
	if err := bus.Publish(ctx, events.Event{Type: events.TaskFailed, TaskID: "task-2", Exception: "timeout"}); err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		e, err := failures.Receive(ctx)
		fmt.Println(e.TaskID, e.Exception, err)
	}
	// Output:
	// task-1 no such host <nil>
	// task-2 timeout <nil>
}
