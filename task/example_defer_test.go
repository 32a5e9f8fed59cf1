package task_test

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// A handler sends a request to another service, whose answer comes later. Any process that gets the
// answer names the key. Here no consumer runs the handler, so Expect fails.
func ExampleDefer() {
	ask := func(ctx context.Context, order string) (string, error) {
		if err := task.Expect(ctx, order); err != nil { // stored before the request is sent
			return "", err
		}
		// ... send the request ...
		return "", task.Defer(order, task.AnswerWithin(time.Hour))
	}
	_, err := ask(context.Background(), "order-7")
	fmt.Println(err)
	fmt.Println(task.Defer("order-7"))
	// Output:
	// swarmiji: cannot wait for answers outside of a handler or without consumer.Config.Deferrals
	// swarmiji: deferred until the answer for order-7 comes
}
