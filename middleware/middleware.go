// Package middleware wraps handlers and submissions: one concern a file. Middleware never touches a broker; what a handler
// or a middleware decides it says by the error it returns, and the consumer carries it out.
package middleware

import (
	"context"

	"github.com/swarmiji/swarmiji/task"
)

// Middleware wraps a handler. The wrapped handler is called from many goroutines. It may change the context or hand on a
// changed copy of the request, look at or replace the result and the error, or not call next at all.
type Middleware func(next task.Handler) task.Handler

// Chain wraps h in ms, the first outermost.
func Chain(h task.Handler, ms ...Middleware) task.Handler {
	for i := len(ms) - 1; i >= 0; i-- {
		h = ms[i](h)
	}
	return h
}

// Sender stages a task on its way to a queue. Nil means staged; that it reached the broker is known later, when Submit or
// SubmitAll returns. The envelope may be changed on the way, its Args and Headers only by replacing them.
type Sender func(ctx context.Context, queue string, e *task.Envelope) error

// SendMiddleware wraps a Sender. An error that it returns is a veto: the task is not sent and the caller gets the error.
type SendMiddleware func(next Sender) Sender

// ChainSend wraps s in ms, the first outermost.
func ChainSend(s Sender, ms ...SendMiddleware) Sender {
	for i := len(ms) - 1; i >= 0; i-- {
		s = ms[i](s)
	}
	return s
}
