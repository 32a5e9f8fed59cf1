package task_test

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/swarmiji/swarmiji/task"
)

// The error of a failed task crosses processes as a RemoteError: text, type and stack. This module's own errors are still
// known by errors.Is; those of handlers by their text and the name of their type.
func ExampleRemoteError() {
	for _, err := range []error{
		fmt.Errorf("%w of 10s", task.ErrTimeLimit),
		fmt.Errorf("reading: %w", &fs.PathError{Op: "open", Path: "a.csv", Err: fs.ErrNotExist}),
	} {
		remote := task.Remote(err) // as the submitter gets it from Future.Get
		fmt.Printf("%s | %s | %t\n", remote.Type, remote.Message, errors.Is(remote, task.ErrTimeLimit))
	}
	// Output:
	// swarmiji.TimeLimit | swarmiji: time limit exceeded of 10s | true
	// errors.errorString | reading: open a.csv: file does not exist | false
}
