package task_test

import (
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// A Backoff is a literal. Tasks use it (RetryPolicy, middleware.RetryConfig), and so do connections
// (the Config of every adapter).
func ExampleBackoff() {
	for _, b := range []task.Backoff{
		{Strategy: task.BackoffConstant, Base: time.Second},
		{Strategy: task.BackoffLinear, Base: time.Second, Max: 3 * time.Second},
		{Strategy: task.BackoffExponential, Base: time.Second, Max: 10 * time.Second},
	} {
		var longest [5]time.Duration
		for n := range longest {
			longest[n], _ = b.Ceiling(n)
		}
		fmt.Println(longest)
	}
	connect := task.Backoff{Max: 30 * time.Second} // 0 to 100 ms, 200 ms, 400 ms and so on
	fmt.Println(connect.Interval(0) <= 100*time.Millisecond, connect.Interval(20) <= 30*time.Second)
	// Output:
	// [1s 1s 1s 1s 1s]
	// [1s 2s 3s 3s 3s]
	// [1s 2s 4s 8s 10s]
	// true true
}
