package natsevents_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/swarmiji/swarmiji/broker/natsbroker/embedded"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/natsevents"
)

// A listener that subscribes late receives the failures of the last hour. The server runs in this
// process; set URLs to use another one.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	srv, err := embedded.Open(ctx, dir, embedded.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close(ctx)
	bus, err := natsevents.New(natsevents.Config{
		Connect: natsconnect.Config{InProcess: srv},
		Retain:  events.Retention{Age: time.Hour, Types: []string{events.TaskFailed}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer bus.Close(ctx)

	for _, e := range []events.Event{
		{Type: events.TaskStarted, TaskID: "task-1", PID: 4711},
		{Type: events.TaskFailed, TaskID: "task-1", Exception: "no such host", Retry: true},
	} {
		if err := bus.Publish(ctx, e); err != nil {
			fmt.Println(err)
			return
		}
	}
	failures, err := bus.Replay(ctx, events.Filter{}, time.Now().Add(-time.Hour))
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := failures.Receive(ctx)
	fmt.Println(e.Type, e.TaskID, e.Exception, e.Retry, err)
	// Output:
	// task-failed task-1 no such host true <nil>
}
