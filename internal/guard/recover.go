// Package guard runs functions of users: it turns a panic into an error and enforces the time
// limits of handlers.
package guard

import (
	"fmt"
	"runtime/debug"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/task"
)

// Recover turns a panic into the error of the function that defers it:
//
//	defer guard.Recover(&err)
//
// The error is a [*task.PanicError] with the stack. Without a panic err is not changed. The end of
// a goroutine (runtime.Goexit) cannot be recovered.
func Recover(err *error) {
	if p := recover(); p != nil {
		*err = &task.PanicError{Text: text(p), Trace: utf.Cut(string(debug.Stack()), task.MaxStack)}
	}
}

// text returns a description of the panic value p, at most task.MaxErrorText bytes. If a method of
// p panics, it returns a text with the type of p.
func text(p any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T, whose text cannot be read", p)
		}
	}()
	return task.Describe(p, task.MaxErrorText)
}

// Call calls fn and returns its error. A panic of fn is returned as a [*task.PanicError].
func Call(fn func() error) (err error) {
	defer Recover(&err)
	return fn()
}
