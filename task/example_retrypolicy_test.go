package task_test

import (
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// A retry policy is data: it travels with each task, and every consumer applies it without
// middleware.
func ExampleRetryPolicy() {
	charge := task.New[int, string]("charge", task.WithMaxRetries(5), task.WithRetry(task.RetryPolicy{
		On: []string{"net.OpError", "billing.Busy", "swarmiji.TimeLimit"},
		Backoff: task.Backoff{
			Strategy: task.BackoffExponential, Base: 500 * time.Millisecond, Max: 2 * time.Second,
		},
	}))
	text := charge.Metadata().Retry.Or("")
	fmt.Println(text)

	policy, err := task.ParseRetryPolicy(text)
	if err != nil {
		panic(err)
	}
	for n := range 4 {
		d, _ := policy.Backoff.Ceiling(n)
		fmt.Println(d)
	}
	// Output:
	// exponential base=500 max=2000 on=net.OpError,billing.Busy,swarmiji.TimeLimit
	// 500ms
	// 1s
	// 2s
	// 2s
}
