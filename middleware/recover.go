package middleware

import (
	"context"
	"runtime/debug"

	"github.com/swarmiji/swarmiji/task"
)

// PanicError is the error of a handler that panicked. It is [task.ErrPanic].
type PanicError struct {
	Text  string // the panic value, fields tagged `task:"secret"` left out
	stack string
}

// NewPanicError makes the error of a recovered panic value with the calling goroutine's stack.
func NewPanicError(value any) *PanicError {
	return &PanicError{Text: task.Describe(value, task.MaxErrorText), stack: string(debug.Stack())}
}

// Error returns the panic value's text.
func (e *PanicError) Error() string { return "panic: " + e.Text }

// Is reports whether target is [task.ErrPanic].
func (e *PanicError) Is(target error) bool { return target == task.ErrPanic }

// Stack returns the stack of the panic.
func (e *PanicError) Stack() string { return e.stack }

// Recover turns a panic in what it wraps into a [*PanicError]. A consumer puts it around everything by itself; inside one's
// own chain it lets the middleware outside it see an ordinary error. (runtime.Goexit cannot be recovered; the consumer
// notices it too and fails the task.)
func Recover() Middleware {
	return func(next task.Handler) task.Handler {
		return task.HandlerFunc(func(ctx context.Context, r *task.Request) (res any, err error) {
			defer func() {
				if p := recover(); p != nil {
					res, err = nil, NewPanicError(p)
				}
			}()
			return next.Handle(ctx, r)
		})
	}
}
