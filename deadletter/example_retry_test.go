package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// One member of a group fails because a server is down. After the repair only that member and the
// task behind the group run.
func ExampleLetters_Retry() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b, results := membroker.New(), memresults.New(memresults.Config{})
	quiet := slog.New(slog.DiscardHandler)
	p, err := producer.New(producer.Config{Broker: b, Results: results, Logger: quiet})
	must(err)
	c, err := consumer.New(consumer.Config{Broker: b, Results: results, Logger: quiet})
	must(err)
	fetch, sum := task.New[string, int]("fetch"), task.New[[]int, int]("sum")
	var up atomic.Bool
	var runs atomic.Int64
	must(fetch.Handle(c, func(_ context.Context, host string) (int, error) {
		runs.Add(1)
		if host == "b.example" && !up.Load() {
			return 0, errors.New("connection refused")
		}
		return len(host), nil
	}))
	must(sum.Handle(c, func(_ context.Context, sizes []int) (int, error) { return sizes[0] + sizes[1], nil }))
	stop, stopped := context.WithCancel(ctx)
	done := make(chan error)
	go func() { done <- c.Run(stop) }()

	run, err := task.Chord(task.Map(fetch), sum).Submit(ctx, p, []string{"a.example", "b.example"}, task.WithID("sizes"))
	must(err)
	_, err = run.Get(ctx)
	fmt.Println("failed:", err)

	up.Store(true)
	letters, err := deadletter.New(deadletter.Config{Broker: b, Results: results})
	must(err)
	for r := (deadletter.Report{}); r.Done == 0; { // all members must have ended
		if r, err = letters.Retry(ctx, "sizes", "default"); err != nil && !errors.Is(err, deadletter.ErrNoRetry) {
			panic(err)
		}
	}
	fmt.Println(task.FutureOf[int](p.Pending("sizes")).Get(ctx))
	fmt.Println("runs of fetch:", runs.Load())

	stopped()
	must(<-done)
	must(p.Close(ctx))
	// Output:
	// failed: step fetch: connection refused
	// 18 <nil>
	// runs of fetch: 3
}
