package task_test

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/swarmiji/swarmiji/task"
)

// The error of a failed task reaches other processes as a RemoteError: text, type and stack.
// errors.Is still matches errors of this module; errors of handlers are known by their text and
// type name.
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
