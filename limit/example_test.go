package limit_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// At most two exports run at a time, in all processes that share the limiter. Other exports are
// delayed, and their workers run other tasks. With package redislimit instead of NewMemory the
// processes may run on many machines.
func Example() {
	export := task.New[int, int]("report.export")
	atMostTwo, err := limit.Admit(limit.Config{
		Limiter: limit.NewMemory(), Tasks: map[string][]limit.Permit{"report.export": {{Key: "exports", Max: 2}}}, Delay: 10 * time.Millisecond,
	})
	must(err)

	broker, results := membroker.New(), memresults.New(memresults.Config{})
	c, err := consumer.New(consumer.Config{
		Broker: broker, Results: results, Admit: []middleware.Admit{atMostTwo},
		Queues: map[string]consumer.QueueConfig{"default": {Workers: 8}},
	})
	must(err)
	var now, most atomic.Int64
	must(export.Handle(c, func(_ context.Context, n int) (int, error) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		<-time.After(time.Millisecond)
		return n, nil
	}))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(context.Background()) }()

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	p, err := producer.New(producer.Config{Broker: broker, Results: results})
	must(err)
	futures, err := export.SubmitAll(ctx, p, make([]int, 10))
	must(err)
	for _, f := range futures {
		_, err := f.Get(ctx)
		must(err)
	}
	fmt.Println("more than two at once:", most.Load() > 2)
	c.Stop()
	must(<-ended)
	must(p.Close(ctx))
	must(results.Close(ctx))
	must(broker.Close(ctx))
	// Output: more than two at once: false
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
