package task_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// A definition is a value: a name, types and options. With returns another definition of the same
// task. The options of a call override both.
func ExampleNew() {
	type photo struct{ URL string }
	resize := task.New[photo, int]("photo.resize", task.WithQueue("images"), task.WithTimeLimit(time.Minute))
	large := resize.With(task.WithTimeLimit(10 * time.Minute))

	fmt.Println(large.Name(), large.Metadata().TimeLimit.Or(0), large.Metadata().Queue.Or(""))
	fmt.Println(resize.Name(), resize.Metadata().TimeLimit.Or(0)) // unchanged

	call := large.Call(photo{"https://example.org/a.png"}, task.WithHeader("tenant", "acme"), task.WithMaxRetries(0))
	fmt.Println(call.Name, call.Args, call.Headers, call.Meta.MaxRetries.Or(-1))

	// Metadata are checked at submission, before anything is sent.
	bad := task.Metadata{RateLimit: task.Set("many")}
	fmt.Println(errors.Is(bad.Check(), task.ErrBadMetadata))
	// Output:
	// photo.resize 10m0s images
	// photo.resize 1m0s
	// photo.resize {https://example.org/a.png} map[tenant:acme] 0
	// true
}
