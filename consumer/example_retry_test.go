package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// What a handler returns is the verdict on the task. task.Retry runs it again later, under the same id, while the future
// waits; the broker holds it in the meantime and no worker does. When the retries are used up it fails with the cause.
func Example_retry() {
	fetch := task.New[int, string]("fetch", task.WithMaxRetries(2))

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(fetch.Handle(c, func(ctx context.Context, needed int) (string, error) {
		r, _ := task.FromContext(ctx)
		if r.Retries < needed {
			return "", task.Retry(errors.New("connection refused"), task.After(time.Millisecond))
		}
		return fmt.Sprintf("fetched after %d retries", r.Retries), nil
	}))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	for _, needed := range []int{1, 5} {
		future, err := fetch.Submit(ctx, p, needed)
		must(err)
		text, err := future.Get(ctx)
		fmt.Printf("%q %v\n", text, err)
	}
	// Output:
	// "fetched after 1 retries" <nil>
	// "" connection refused
}
