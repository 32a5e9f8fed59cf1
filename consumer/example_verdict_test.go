package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// task.Snooze means "not now": the task is seen again later and nothing is counted. task.Fail means "never": no middleware
// retries it. Any other error is what middleware makes of it; here it is retried.
func Example_verdicts() {
	load := task.New[string, string]("load", task.WithRetryDelay(0))

	p, c, run := inMemory(producer.Config{}, consumer.Config{
		Middleware: []middleware.Middleware{middleware.Retry(middleware.RetryConfig{})},
	})
	var runs atomic.Int64
	must(load.Handle(c, func(ctx context.Context, file string) (string, error) {
		n := runs.Add(1)
		r, _ := task.FromContext(ctx)
		switch {
		case file == "corrupt.csv":
			return "", task.Fail(errors.New("not a table"))
		case n == 1:
			return "", task.Snooze(time.Millisecond) // the directory is locked
		case n == 2:
			return "", errors.New("read error")
		}
		return fmt.Sprintf("run %d, retries %d", n, r.Retries), nil
	}))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	for _, file := range []string{"a.csv", "corrupt.csv"} {
		future, err := load.Submit(ctx, p, file)
		must(err)
		text, err := future.Get(ctx)
		fmt.Printf("%q %v\n", text, err)
	}
	fmt.Println(runs.Load(), "runs")
	// Output:
	// "run 3, retries 1" <nil>
	// "" not a table
	// 4 runs
}
