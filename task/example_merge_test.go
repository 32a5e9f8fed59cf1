package task_test

import (
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Metadata configure how a task runs. They come in layers: for each key the highest layer that sets
// it counts, even with zero or false.
func ExampleMerge() {
	m := task.Merge(
		// lowest: the configuration
		task.Metadata{MaxRetries: task.Set(5), IgnoreResult: task.Set(true)},
		task.Metadata{MaxRetries: task.Set(0), TimeLimit: task.Set(30 * time.Second)}, // the definition
		// highest: the call
		task.Metadata{IgnoreResult: task.Set(false)},
	)
	fmt.Println(m.MaxRetries.Get())
	fmt.Println(m.IgnoreResult.Get())
	fmt.Println(m.TimeLimit.Get())
	fmt.Println(m.RetryDelay.Or(task.DefaultRetryDelay)) // set by no layer
	// Output:
	// 0 true
	// false true
	// 30s true
	// 3m0s
}
