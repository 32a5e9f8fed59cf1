// Package router selects the queue of a task. Routers do no I/O and are safe for concurrent use.
package router

import (
	"context"

	"github.com/swarmiji/swarmiji/task"
)

// DefaultQueue is the queue of tasks without another route.
const DefaultQueue = "default"

// Router selects the queue of each submitted task.
type Router interface {
	// Route returns the queue of e, whose ID, Name, Meta and Headers are set and Args is not. An error
	// refuses the submission. It must not change or keep e.
	//
	// A queue in the task's metadata overrides the router. The producer applies that; a Router may
	// ignore it.
	Route(ctx context.Context, e *task.Envelope) (queue string, err error)
	// Queues returns every queue that Route may return, the most urgent first, always the same list.
	// Producers declare these queues. A consumer without its own configuration consumes them.
	Queues() []string
}
