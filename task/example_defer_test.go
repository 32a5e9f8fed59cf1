package task_test

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// A handler sends a request to another service, whose answer comes later. Whoever gets the answer says which key it is for, from any
// process. Here no consumer runs the handler, so that nothing can wait.
func ExampleDefer() {
	ask := func(ctx context.Context, order string) (string, error) {
		if err := task.Expect(ctx, order); err != nil { // on disk before the request is sent
			return "", err
		}
		// ... send the request ...
		return "", task.Defer(order, task.AnswerWithin(time.Hour))
	}
	_, err := ask(context.Background(), "order-7")
	fmt.Println(err)
	fmt.Println(task.Defer("order-7"))
	// Output:
	// swarmiji: answers from outside cannot be awaited outside of a running handler or without consumer.Config.Deferrals
	// swarmiji: deferred until the answer for order-7 comes
}
