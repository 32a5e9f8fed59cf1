package task_test

import (
	"fmt"

	"github.com/swarmiji/swarmiji/task"
)

// Conditions of all tasks of a name belong to the definition, and conditions that depend on the
// arguments to the call.
func ExampleConditions() {
	bill := task.New[string, bool]("bill.send", task.WithThrottle("bills"), task.WithWindows("Mon-Fri 08:00-18:00"))
	call := bill.Call("for ada", task.WithSequenceKey("customer ada"), task.WithWeight(2))
	fmt.Println(call.Conditions.Throttle, "|", call.Conditions.Windows, "|", call.Conditions.SequenceKey, "|", call.Conditions.Weight.Or(1))
	// Output: bills | Mon-Fri 08:00-18:00 | customer ada | 2
}
