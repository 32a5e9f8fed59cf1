package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// task.Snooze means "not now": the task comes again later, and nothing is counted. task.Fail means
// "never": no middleware retries it. Middleware decides about any other error; here it is retried.
func Example_verdicts() {
	load := task.New[string, string]("load", task.WithRetryDelay(0))

	s := tasktest.New(nil)
	defer s.Close()
	var runs atomic.Int64

	s.Start(consumer.Config{
		Middleware: []middleware.Middleware{middleware.Retry(middleware.RetryConfig{})},
	}, func(r task.Registrar) error {
		return load.Handle(r, func(ctx context.Context, file string) (string, error) {
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
		})
	})

	ctx := context.Background()
	for _, file := range []string{"a.csv", "corrupt.csv"} {
		future, err := load.Submit(ctx, s, file)
		if err != nil {
			panic(err)
		}
		text, err := future.Get(ctx)
		fmt.Printf("%q %v\n", text, err)
	}
	fmt.Println(runs.Load(), "runs")
	// Output:
	// "run 3, retries 1" <nil>
	// "" not a table
	// 4 runs
}
