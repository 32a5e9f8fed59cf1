package events_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/events"
)

func ExampleEncode() {
	data, err := events.Encode([]events.Event{{
		Type:   events.TaskSucceeded,
		TaskID: "0199-a",
		NodeID: "host-7",
		Time:   time.UnixMilli(1_795_190_645_678),

		Runtime: 1500 * time.Microsecond,
		Pool:    4 * time.Millisecond,
		Result:  "3",
		Fields:  map[string]any{"tenant": "acme"},
	}})
	fmt.Println(strings.ReplaceAll(string(data), ",", ",\n"), err)
	// Output:
	// [{"type":"task-succeeded",
	// "task-id":"0199-a",
	// "node-id":"host-7",
	// "timestamp":1795190645678,
	// "runtime-ms":1.5,
	// "pool-ms":4,
	// "result":"3",
	// "tenant":"acme"}] <nil>
}

func ExampleDecode() {
	es, err := events.Decode([]byte(`[
		{"type":"task-started","task-id":"0199-a","node-id":"host-7","timestamp":1795190645000,"pid":4711},
		{"type":"task-failed","task-id":"0199-a","node-id":"host-7","timestamp":1795190645678,
		 "runtime-ms":1.5,"pool-ms":4,"exception":"no such host","stack-trace":"","retry":true}
	]`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range es {
		fmt.Println(e.Time.Format(time.RFC3339Nano), e.Type, e.PID, e.Runtime, e.Exception, e.Retry)
	}
	_, err = events.Decode([]byte(`[{"type":"task-started","pid":"4711"}]`))
	fmt.Println(err)
	// Output:
	// 2026-11-20T16:04:05Z task-started 4711 0s  false
	// 2026-11-20T16:04:05.678Z task-failed 0 1.5ms no such host true
	// events: malformed message: want a number at byte 30
}

// An adapter puts a Batcher before its connection. Publishing then never waits for the connection.
func ExampleBatcher() {
	b := events.NewBatcher(func(_ context.Context, message []byte, n int) error {
		fmt.Println(n, "events in one message")
		return nil // an adapter publishes the message here
	}, events.BatcherConfig{})
	for range 150 {
		if err := b.Add(events.Event{Type: events.TaskStarted}); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(b.Close(context.Background()), b.Dropped())
	// Output:
	// 100 events in one message
	// 50 events in one message
	// <nil> 0
}
