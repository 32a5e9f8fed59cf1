// Package router chooses the queue of a task. Routers are pure: they hold no connection and may be used from any goroutine.
package router

import (
	"context"

	"github.com/swarmiji/swarmiji/task"
)

// DefaultQueue is the queue of tasks that nobody routes elsewhere.
const DefaultQueue = "default"

// Router picks the queue of each submitted task.
type Router interface {
	// Route returns the queue of e, of which ID, Name, Meta and Headers are set and Args is not. A queue given in the
	// task's metadata overrides it; the producer does that, a Router need not look. e is the producer's: Route neither changes nor
	// keeps it. An error refuses the submission.
	Route(ctx context.Context, e *task.Envelope) (queue string, err error)
	// Queues returns every queue that Route may name, most urgent first: a producer declares them, and a consumer with no
	// configuration of its own listens on them. Always the same list.
	Queues() []string
}
