package task_test

import (
	"fmt"

	"github.com/swarmiji/swarmiji/task"
)

// A field tagged `task:"secret"` is left out of the texts that this module makes of a value, such
// as the text of a panic.
func ExampleDescribe() {
	type login struct {
		User     string
		Password string `task:"secret"`
	}
	fmt.Println(task.Describe([]login{{"ada", "correct horse"}}, 100))
	// Output: [{User:ada Password:[redacted]}]
}
