// Limits bounds the number of running tasks of a name over all processes that share a server. It
// also bounds the starts in a second in one process.
//
//	go run ./examples/limits
//
// It needs no server and prints:
//
//	exports: 8, never more than 2 at a time
//	calls: 5, at least 50 ms apart
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

var (
	Export = task.New[int, int]("demo.export")
	// Call has a limit of its own, for each consumer process.
	Call = task.New[int, time.Time]("demo.call", task.WithRateLimit("20/s"))
)

// permits say what each run needs. Over several processes they are kept in Redis.
var permits = map[string][]limit.Permit{Export.Name(): {{Key: "exports", Max: 2}}}

func call(context.Context, int) (time.Time, error) { return time.Now(), nil }

func main() {
	ctx := context.Background()
	swarm, err := open.Open(ctx, "mem://", open.Options{Limits: permits})
	check(err)
	p, err := swarm.Producer(producer.Config{})
	check(err)
	c, err := swarm.Consumer(consumer.Config{Queues: map[string]consumer.QueueConfig{"default": {Workers: 8}}})
	check(err)
	var now, most atomic.Int64
	export := func(_ context.Context, n int) (int, error) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		<-time.After(10 * time.Millisecond)
		return n, nil
	}
	check(errors.Join(Export.Handle(c, export), Call.Handle(c, call)))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()

	exports, err := Export.SubmitAll(ctx, p, make([]int, 8))
	check(err)
	for _, f := range exports {
		_, err := f.Get(ctx)
		check(err)
	}
	fmt.Printf("exports: %d, never more than %d at a time\n", len(exports), most.Load())

	begun := time.Now()
	calls, err := Call.SubmitAll(ctx, p, make([]int, 5))
	check(err)
	for _, f := range calls {
		_, err := f.Get(ctx)
		check(err)
	}
	if time.Since(begun) >= 150*time.Millisecond { // two at once, the others 50 ms apart
		fmt.Printf("calls: %d, at least 50 ms apart\n", len(calls))
	}

	stop()
	check(errors.Join(<-ended, p.Close(ctx), swarm.Close(ctx)))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
