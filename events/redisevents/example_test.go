package redisevents_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/redisevents"
)

// A listener that subscribes late receives the failures of the last hour. The example needs a
// server.
func Example() {
	ctx := context.Background()
	bus, err := redisevents.New(redisevents.Config{
		Redis:  &redis.UniversalOptions{Addrs: []string{"localhost:6379"}},
		Retain: events.Retention{Age: time.Hour, Types: []string{events.TaskFailed}},
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
	// task-failed task-1 no such host true <nil>
	fmt.Println(e.Type, e.TaskID, e.Exception, e.Retry, err)
}

// New checks everything that needs no server and returns all problems in one error.
func ExampleNew() {
	_, err := redisevents.New(redisevents.Config{
		Redis:     &redis.UniversalOptions{Addrs: []string{"localhost:6379"}},
		Namespace: "a.b",
		Buffer:    -1,
	})
	fmt.Println(err)
	// Output:
	// redisevents: Buffer is negative
	// redisevents: Namespace must be 1 to 64 letters, digits, '_' and '-', first a letter or digit
}
