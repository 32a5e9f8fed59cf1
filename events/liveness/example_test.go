package liveness_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/liveness"
	"github.com/swarmiji/swarmiji/events/memevents"
)

// An observer lists the consumers and producers that are alive and reports changes.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b, bus := membroker.New(), memevents.New(memevents.Config{})
	var running sync.WaitGroup
	run := func(f func(context.Context) error) (stop func()) {
		ctx, cancel := context.WithCancel(ctx)
		running.Go(func() {
			if err := f(ctx); err != nil {
				fmt.Println(err)
			}
		})
		return cancel
	}

	changes := make(chan liveness.Node, 10)
	observer, err := liveness.New(liveness.Config{Bus: bus, OnChange: func(n liveness.Node) { changes <- n }})
	if err != nil {
		fmt.Println(err)
		return
	}
	stopObserver := run(observer.Run)
	c, err := consumer.New(consumer.Config{
		Broker: b, Events: bus, Report: events.Report{NodeID: "worker-1", HeartbeatEvery: 20 * time.Millisecond, HeartbeatFields: func() map[string]any { return map[string]any{"zone": "b"} }},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stopConsumer := run(c.Run)

	n := <-changes
	fmt.Println(n.ID, n.Worker.Role, "online:", n.Online)
	for n.Fields == nil { // the fields arrive with the next heartbeat
		<-time.After(time.Millisecond)
		n = observer.Nodes()[0]
	}
	fmt.Println("zone:", n.Fields["zone"])
	stopConsumer()
	n = <-changes
	fmt.Println(n.ID, "online:", n.Online, "by its own word:", n.Left)

	stopObserver()
	running.Wait()
	_ = bus.Close(ctx)
	_ = b.Close(ctx)
	// Output:
	// worker-1 consumer online: true
	// zone: b
	// worker-1 online: false by its own word: true
}
