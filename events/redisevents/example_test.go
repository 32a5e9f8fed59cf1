package redisevents_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/redisevents"
)

// A listener that comes late gets the failures of the last hour. It needs a server.
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
	fmt.Println(e.Type, e.TaskID, e.Exception, e.Retry, err) // task-failed task-1 no such host true <nil>
}

// What can be checked without a server is checked by New, and all problems are told together.
func ExampleNew() {
	_, err := redisevents.New(redisevents.Config{
		Redis:     &redis.UniversalOptions{Addrs: []string{"localhost:6379"}},
		Namespace: "a.b",
		Buffer:    -1,
	})
	fmt.Println(err)
	// Output:
	// redisevents: Buffer is negative
	// redisevents: Namespace must be 1 to 64 letters, digits, '_' and '-'
}
