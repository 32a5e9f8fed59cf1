package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// The result of a handler decides what happens to the task. With task.Retry it runs again later,
// under the same id, while the future waits. Meanwhile the broker holds the message and the worker
// is free. After the last retry the task fails with the cause.
func Example_retry() {
	fetch := task.New[int, string]("fetch", task.WithMaxRetries(2))

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return fetch.Handle(r, func(ctx context.Context, needed int) (string, error) {
			r, _ := task.FromContext(ctx)
			if r.Retries < needed {
				return "", task.Retry(errors.New("connection refused"), task.After(time.Millisecond))
			}
			return fmt.Sprintf("fetched after %d retries", r.Retries), nil
		})
	})

	ctx := context.Background()
	for _, needed := range []int{1, 5} {
		future, err := fetch.Submit(ctx, s, needed)
		if err != nil {
			panic(err)
		}
		text, err := future.Get(ctx)
		fmt.Printf("%q %v\n", text, err)
	}
	// Output:
	// "fetched after 1 retries" <nil>
	// "" connection refused
}
