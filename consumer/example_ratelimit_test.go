package consumer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// A rate limit holds for a task's name in each consumer process. It has no burst above its share of 100 ms.
func Example_rateLimit() {
	call := task.New[int, int]("api.call", task.WithRateLimit("20/s"))

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(call.Handle(c, func(_ context.Context, n int) (int, error) { return n, nil }))
	begin := time.Now()
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	futures, err := call.SubmitAll(ctx, p, make([]int, 24)) // 2 at once, then one each 50 ms
	must(err)
	for _, f := range futures {
		_, err := f.Get(ctx)
		must(err)
	}
	fmt.Println("limited:", time.Since(begin) >= time.Second)
	// Output: limited: true
}
