// Package guard runs functions of users: a panic is an error, and a handler keeps its time limits.
package guard

import (
	"fmt"
	"runtime/debug"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/task"
)

// Recover makes a panic the error of the function that defers it:
//
//	defer guard.Recover(&err)
//
// The error is a [*task.PanicError]. Without a panic err stays as it is. The end of a goroutine
// (runtime.Goexit) cannot be recovered.
func Recover(err *error) {
	if p := recover(); p != nil {
		*err = &task.PanicError{Text: text(p), Trace: utf.Cut(string(debug.Stack()), task.MaxStack)}
	}
}

// text describes a panic value. Its methods are a user's code, and may panic too.
func text(p any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T, whose text cannot be read", p)
		}
	}()
	return task.Describe(p, task.MaxErrorText)
}

// Call calls fn. A panic is its error.
func Call(fn func() error) (err error) {
	defer Recover(&err)
	return fn()
}
