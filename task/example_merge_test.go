package task_test

import (
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Metadata say how a task is run. Layers lie over each other; of each key the highest layer that sets it counts, also when
// it sets zero or false.
func ExampleMerge() {
	m := task.Merge(
		task.Metadata{MaxRetries: task.Set(5), IgnoreResult: task.Set(true)},          // lowest: the configuration
		task.Metadata{MaxRetries: task.Set(0), TimeLimit: task.Set(30 * time.Second)}, // the definition
		task.Metadata{IgnoreResult: task.Set(false)},                                  // highest: the call
	)
	fmt.Println(m.MaxRetries.Get())
	fmt.Println(m.IgnoreResult.Get())
	fmt.Println(m.TimeLimit.Get())
	fmt.Println(m.RetryDelay.Or(task.DefaultRetryDelay)) // set by none
	// Output:
	// 0 true
	// false true
	// 30s true
	// 3m0s
}
