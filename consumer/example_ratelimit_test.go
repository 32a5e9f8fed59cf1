package consumer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A rate limit holds for a task's name in each consumer process. Its burst is the share of 100 ms.
func Example_rateLimit() {
	call := task.New[int, int]("api.call", task.WithRateLimit("20/s"))

	s := tasktest.New(nil)
	defer s.Close()
	begin := time.Now()

	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return call.Handle(r, func(_ context.Context, n int) (int, error) { return n, nil })
	})

	ctx := context.Background()
	futures, err := call.SubmitAll(ctx, s, make([]int, 24)) // 2 at once, then one each 50 ms
	if err != nil {
		panic(err)
	}
	for _, f := range futures {
		_, err := f.Get(ctx)
		if err != nil {
			panic(err)
		}
	}
	fmt.Println("limited:", time.Since(begin) >= time.Second)
	// Output: limited: true
}
