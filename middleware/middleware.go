// Package middleware wraps handlers and submissions. Each file has one concern. Middleware does not
// access the broker: it returns an error, and the consumer carries out its verdict.
package middleware

import (
	"context"

	"github.com/swarmiji/swarmiji/task"
)

// Middleware wraps a handler. The returned handler is called from many goroutines. It may change
// the context, pass a changed copy of the request, replace the result and the error, or not call
// next.
type Middleware func(next task.Handler) task.Handler

// Chain wraps h in ms; the first is the outermost.
func Chain(h task.Handler, ms ...Middleware) task.Handler {
	for i := len(ms) - 1; i >= 0; i-- {
		h = ms[i](h)
	}
	return h
}

// Sender stages a task for a queue. A nil error means that the task is staged; whether the broker
// has it is known when Submit or SubmitAll returns. A Sender may change the envelope, but must
// replace Args and Headers instead of changing their contents.
type Sender func(ctx context.Context, queue string, e *task.Envelope) error

// SendMiddleware wraps a Sender. An error is a veto: the task is not sent, and the caller gets the
// error.
type SendMiddleware func(next Sender) Sender

// ChainSend wraps s in ms; the first is the outermost.
func ChainSend(s Sender, ms ...SendMiddleware) Sender {
	for i := len(ms) - 1; i >= 0; i-- {
		s = ms[i](s)
	}
	return s
}
